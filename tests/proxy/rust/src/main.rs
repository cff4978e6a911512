//! rskafka, from the beginning of a topic: clients BOOTSTRAP TOPIC.
//!
//! Writes a JSON array a line: partition, offset, time (ms), key, value, headers. It always asks for read_committed, and
//! filters no aborted records. It fails at a marker of a transaction, and at a header whose value is null.

use std::error::Error;
use std::io::{BufWriter, Write, stdout};

use rskafka::client::ClientBuilder;
use rskafka::client::partition::{OffsetAt, UnknownTopicHandling};
use rskafka::record::RecordAndOffset;

const BYTES: i32 = 1 << 20;
const WAIT_MS: i32 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(read(&arguments[1], &arguments[2]))
}

async fn read(bootstrap: &str, topic: &str) -> Result<(), Box<dyn Error>> {
    let client = ClientBuilder::new(vec![bootstrap.to_owned()]).build().await?;
    let topics = client.list_topics().await?;
    let found = topics.iter().find(|each| each.name == topic).ok_or("no such topic")?;
    let mut out = BufWriter::new(stdout().lock());
    for &partition in &found.partitions {
        let reads = client.partition_client(topic, partition, UnknownTopicHandling::Error).await?;
        let mut offset = reads.get_offset(OffsetAt::Earliest).await?;
        let end = reads.get_offset(OffsetAt::Latest).await?;
        while offset < end {
            let (records, _) = reads.fetch_records(offset, 1..BYTES, WAIT_MS).await?;
            for each in &records {
                writeln!(out, "{}", row(partition, each))?;
                offset = each.offset + 1;
            }
        }
    }
    Ok(out.flush()?)
}

fn row(partition: i32, record: &RecordAndOffset) -> String {
    let fields = &record.record;
    let headers: Vec<String> =
        fields.headers.iter().map(|(name, value)| format!("[{name:?}, {}]", text(Some(value)))).collect();
    format!(
        "[{partition}, {}, {}, {}, {}, [{}]]",
        record.offset,
        fields.timestamp.timestamp_millis(),
        text(fields.key.as_ref()),
        text(fields.value.as_ref()),
        headers.join(", ")
    )
}

fn text(bytes: Option<&Vec<u8>>) -> String {
    match bytes {
        None => "null".to_owned(),
        Some(bytes) => format!("\"{}\"", bytes.iter().map(|each| format!("{each:02x}")).collect::<String>()),
    }
}
