// @platformatic/kafka, from the beginning of a topic: platformatic.js BOOTSTRAP TOPIC read_committed|read_uncommitted
import { Consumer, FetchIsolationLevels, ListOffsetTimestamps } from '@platformatic/kafka'
import { done, row } from './row.js'

const [bootstrap, topic, level] = process.argv.slice(2)
const consumer = new Consumer({
  clientId: 'tierstate', groupId: `${topic}-platformatic-${process.pid}-${Date.now()}`, bootstrapBrokers: [bootstrap],
  isolationLevel: FetchIsolationLevels[level.toUpperCase()]
})
const ends = (await consumer.listOffsets({ topics: [topic], timestamp: ListOffsetTimestamps.LATEST })).get(topic)
const left = new Map(ends.entries())
const stream = await consumer.consume({ topics: [topic], mode: 'earliest', autocommit: false })
for await (const each of stream) {
  const headers = [...each.headers].map(([name, bytes]) => [String(name), bytes])
  row(each.partition, each.offset, each.timestamp, each.key, each.value, headers)
  if (each.offset + 1n >= left.get(each.partition)) {
    left.delete(each.partition)
  }
  if (left.size === 0) {
    done()
  }
}
