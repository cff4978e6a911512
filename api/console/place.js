// Where the page is: #/ or #/:tables or #/TOPIC or #/TOPIC/PARTITION/FROM?…, all of it in the address.

const TABLES = ":tables";  // no topic can have this name

export function place() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?");
  const [topic, partition, from] = path.split("/").map(decodeURIComponent);
  if (topic === TABLES) return { tables: true, query: new URLSearchParams() };
  return { topic, partition, from, query: new URLSearchParams(query) };
}
