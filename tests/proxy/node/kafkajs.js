// kafkajs, from the beginning of a topic: kafkajs.js BOOTSTRAP TOPIC read_committed|read_uncommitted
import kafkajs from 'kafkajs'
import { done, row } from './row.js'

const [bootstrap, topic, level] = process.argv.slice(2)
const kafka = new kafkajs.Kafka({ brokers: [bootstrap], logLevel: kafkajs.logLevel.WARN })
const admin = kafka.admin()
await admin.connect()
const left = new Map((await admin.fetchTopicOffsets(topic)).map(each => [each.partition, BigInt(each.high)]))
await admin.disconnect()
const consumer = kafka.consumer({
  groupId: `${topic}-kafkajs-${process.pid}-${Date.now()}`, readUncommitted: level === 'read_uncommitted'
})
consumer.on(consumer.events.CRASH, ({ payload }) => {
  console.error(payload.error)
  process.exit(1)
})
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
await consumer.run({
  autoCommit: false,
  eachBatch: async ({ batch }) => {
    for (const each of batch.messages) {
      row(batch.partition, each.offset, each.timestamp, each.key, each.value, Object.entries(each.headers))
    }
    if (BigInt(batch.lastOffset()) + 1n >= left.get(batch.partition)) {
      left.delete(batch.partition)
    }
    if (left.size === 0) {
      done()
    }
  }
})
