// @platformatic/kafka: platformatic.js BOOTSTRAP LEVEL (TOPIC START)...
import { Consumer, FetchIsolationLevels, ListOffsetTimestamps } from '@platformatic/kafka'
import { row, run } from './row.js'

await run(async (bootstrap, level, topic, start) => {
  const consumer = new Consumer({
    clientId: 'tierstate', groupId: start.group ?? `${topic}-platformatic-${process.pid}-${Date.now()}`,
    bootstrapBrokers: [bootstrap], isolationLevel: FetchIsolationLevels[level.toUpperCase()]
  })
  const at = async timestamp => new Map((await consumer.listOffsets({ topics: [topic], timestamp })).get(topic).entries())
  const left = await at(ListOffsetTimestamps.LATEST)
  const options = { topics: [topic], mode: 'earliest', autocommit: false }
  const offsets = start.time === undefined ? start.offsets : await at(BigInt(start.time))
  if (offsets !== undefined) {
    options.mode = 'manual'
    options.offsets = [...offsets].map(([partition, offset]) => ({ topic, partition, offset }))
  }
  if (start.group !== undefined) {
    options.mode = 'committed'
    options.fallbackMode = 'earliest'
  }
  const last = new Map()
  let count = 0
  const stream = await consumer.consume(options)
  for await (const each of stream) {
    const headers = [...each.headers].map(([name, bytes]) => [String(name), bytes])
    row(each.partition, each.offset, each.timestamp, each.key, each.value, headers)
    last.set(each.partition, each)
    count++
    if (each.offset + 1n >= left.get(each.partition)) {
      left.delete(each.partition)
    }
    if (left.size === 0 || count >= start.records) {
      break
    }
  }
  if (start.group !== undefined) {
    for (const each of last.values()) {
      await each.commit()
    }
    await consumer.close(true)
  }
})
