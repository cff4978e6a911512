// Where the page is: #/ or #/TOPIC or #/TOPIC/PARTITION/FROM?…, all of it in the address.

export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [topic, partition, from] = path.split("/").map(decodeURIComponent);
  return { topic, partition, from, query: new URLSearchParams(query) };
}
