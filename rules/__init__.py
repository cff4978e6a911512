"""What should be done and why not. Pure: values in, values out; nothing here talks to Kafka, a disk or a clock."""
