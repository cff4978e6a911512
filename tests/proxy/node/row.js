// What Node's Kafka clients read, a JSON array a line: partition, offset, time (ms), key, value, headers.
import { writeSync } from 'node:fs'

const lines = []
const text = bytes => (bytes === null || bytes === undefined ? null : bytes.toString('hex'))

// row keeps one; headers are pairs of a name and bytes.
export function row (partition, offset, at, key, value, headers) {
  const shown = headers.map(([name, bytes]) => [name, text(bytes)])
  lines.push(JSON.stringify([partition, Number(offset), Number(at), text(key), text(value), shown]))
}

// done writes them and ends the program: a client's last request and its group's timers may go on for seconds.
export function done () {
  const bytes = Buffer.from(lines.map(line => line + '\n').join(''))
  for (let at = 0; at < bytes.length;) {
    at += writeSync(1, bytes, at)
  }
  process.exit(0)
}
