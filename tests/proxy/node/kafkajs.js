// kafkajs: kafkajs.js BOOTSTRAP LEVEL (TOPIC START)...
import kafkajs from 'kafkajs'
import { row, run } from './row.js'

await run(async (bootstrap, level, topic, start) => {
  const kafka = new kafkajs.Kafka({ brokers: [bootstrap], logLevel: kafkajs.logLevel.WARN })
  const admin = kafka.admin()
  await admin.connect()
  const left = new Map((await admin.fetchTopicOffsets(topic)).map(each => [each.partition, BigInt(each.high)]))
  let offsets = start.offsets ?? new Map()
  if (start.time !== undefined) {
    const found = await admin.fetchTopicOffsetsByTimestamp(topic, start.time)
    offsets = new Map(found.map(each => [each.partition, each.offset]))
  }
  await admin.disconnect()
  const consumer = kafka.consumer({
    groupId: start.group ?? `${topic}-kafkajs-${process.pid}-${Date.now()}`,
    readUncommitted: level === 'read_uncommitted'
  })
  consumer.on(consumer.events.CRASH, ({ payload }) => {
    console.error(payload.error)
    process.exit(1)
  })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  const next = new Map()
  let count = 0
  const enough = () => left.size === 0 || count >= start.records
  await new Promise((resolve, reject) => {
    const eachBatch = async ({ batch, isStale }) => {
      for (const each of batch.messages) {
        if (isStale() || enough()) {
          break
        }
        row(batch.partition, each.offset, each.timestamp, each.key, each.value, Object.entries(each.headers))
        count++
        next.set(batch.partition, BigInt(each.offset) + 1n)
        if (next.get(batch.partition) >= left.get(batch.partition)) {
          left.delete(batch.partition)
        }
      }
      if (enough()) {
        resolve()
      }
    }
    consumer.run({ autoCommit: false, eachBatch }).then(() => {
      for (const [partition, offset] of offsets) {
        consumer.seek({ topic, partition, offset: String(offset) })
      }
    }, reject)
  })
  if (start.group !== undefined) {
    await consumer.commitOffsets([...next].map(([partition, offset]) => ({ topic, partition, offset: String(offset) })))
    await consumer.disconnect()
  }
})
