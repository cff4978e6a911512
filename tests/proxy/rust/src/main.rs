//! rskafka: clients BOOTSTRAP LEVEL (TOPIC START)...
//!
//! Writes a JSON array a line: partition, offset, time (ms), key, value, headers; and an empty one after the rows of each
//! topic. The client has no groups. It always asks for read_committed, and filters no aborted records. It fails at a
//! marker of a transaction, and at a header whose value is null.

use std::error::Error;
use std::io::{BufWriter, Write, stdout};

use chrono::DateTime;
use rskafka::client::ClientBuilder;
use rskafka::client::partition::{OffsetAt, PartitionClient, UnknownTopicHandling};
use rskafka::record::RecordAndOffset;

const BYTES: i32 = 1 << 20;
const WAIT_MS: i32 = 500;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    for read_at in arguments[3..].chunks(2) {
        runtime.block_on(read(&arguments[1], &read_at[0], &read_at[1]))?;
    }
    Ok(())
}

async fn read(bootstrap: &str, topic: &str, start: &str) -> Result<(), Box<dyn Error>> {
    let client = ClientBuilder::new(vec![bootstrap.to_owned()]).build().await?;
    let topics = client.list_topics().await?;
    let found = topics.iter().find(|each| each.name == topic).ok_or("no such topic")?;
    let mut out = BufWriter::new(stdout().lock());
    for &partition in &found.partitions {
        let reads = client.partition_client(topic, partition, UnknownTopicHandling::Error).await?;
        let mut offset = first(&reads, partition, start).await?;
        let end = reads.get_offset(OffsetAt::Latest).await?;
        while offset < end {
            let (records, _) = reads.fetch_records(offset, 1..BYTES, WAIT_MS).await?;
            for each in &records {
                writeln!(out, "{}", row(partition, each))?;
                offset = each.offset + 1;
            }
        }
    }
    writeln!(out, "[]")?;
    Ok(out.flush()?)
}

/// The first offset of a partition; starts.py has the text of a start.
async fn first(reads: &PartitionClient, partition: i32, start: &str) -> Result<i64, Box<dyn Error>> {
    let (way, text) = start.split_once(':').unwrap_or((start, ""));
    Ok(match way {
        "offsets" => {
            let prefix = format!("{partition}=");
            let pair = text.split(',').find_map(|pair| pair.strip_prefix(&prefix));
            pair.ok_or("no offset of this partition")?.parse()?
        }
        "time" => {
            let time = DateTime::from_timestamp_millis(text.parse()?).ok_or("no such time")?;
            reads.get_offset(OffsetAt::Timestamp(time)).await?
        }
        "earliest" => reads.get_offset(OffsetAt::Earliest).await?,
        _ => return Err(format!("rskafka cannot begin at {start}").into()),
    })
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
    let Some(bytes) = bytes else { return "null".to_owned() };
    let mut hex = String::with_capacity(2 * bytes.len() + 2);
    hex.push('"');
    for each in bytes {
        hex.push(char::from_digit(u32::from(each >> 4), 16).unwrap_or('?'));
        hex.push(char::from_digit(u32::from(each & 15), 16).unwrap_or('?'));
    }
    hex.push('"');
    hex
}
