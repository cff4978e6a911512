// What Node's Kafka clients read, a JSON array a line: partition, offset, time (ms), key, value, headers.
import { writeSync } from 'node:fs'

let lines = []
const text = bytes => (bytes === null || bytes === undefined ? null : bytes.toString('hex'))

// row keeps one; headers are pairs of a name and bytes.
export function row (partition, offset, at, key, value, headers) {
  const shown = headers.map(([name, bytes]) => [name, text(bytes)])
  lines.push(JSON.stringify([partition, Number(offset), Number(at), text(key), text(value), shown]))
}

// run reads each topic from each start of the arguments, BOOTSTRAP LEVEL (TOPIC START)..., and writes an empty array after
// the rows of each. Then it ends the program: a client's last request and its group's timers may go on for seconds.
export async function run (read) {
  const [bootstrap, level, ...reads] = process.argv.slice(2)
  for (let at = 0; at < reads.length; at += 2) {
    await read(bootstrap, level, reads[at], parsed(reads[at + 1]))
    lines.push('[]')
    write(Buffer.from(lines.map(line => line + '\n').join('')))
    lines = []
  }
  process.exit(0)
}

// parsed returns the fields of a start (starts.py has its text): offsets (a Map), time (ms), group, and after how many
// records a member of the group ends.
function parsed (start) {
  const [way, ...words] = start.split(':')
  switch (way) {
    case 'offsets':
      return { offsets: new Map(words[0].split(',').map(pair => pair.split('=')).map(([n, at]) => [Number(n), BigInt(at)])) }
    case 'time':
      return { time: Number(words[0]) }
    case 'group':
      return { group: words[0], records: words.length > 1 ? Number(words[1]) : Infinity }
    default:
      return {}
  }
}

function write (bytes) {
  for (let at = 0; at < bytes.length;) {
    at += writeSync(1, bytes, at)
  }
}
