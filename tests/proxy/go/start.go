package clients

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// Start is where a client begins: starts.py has its text. The zero value is the earliest offset.
type Start struct {
	Offsets map[int32]int64
	Time    time.Time
	Group   string
	Records int // a member of a group ends after so many; 0: at the end of the topic
}

// Ends are the end offsets of partitions that are not read to their end yet.
type Ends map[int32]int64

// Read notes a record. It returns whether all partitions are read to their end.
func (ends Ends) Read(partition int32, offset int64) bool {
	if offset+1 >= ends[partition] {
		delete(ends, partition)
	}
	return len(ends) == 0
}

// Run reads each topic from each start of the program's arguments: BOOTSTRAP LEVEL (TOPIC START)... An empty array
// follows the rows of each.
func Run(read func(bootstrap string, committed bool, topic string, start Start)) {
	for at := 3; at+1 < len(os.Args); at += 2 {
		read(os.Args[1], os.Args[2] == "read_committed", os.Args[at], parsed(os.Args[at+1]))
		out.WriteString("[]\n")
	}
	Check(out.Flush())
}

func parsed(text string) (start Start) {
	words := strings.Split(text, ":")
	switch words[0] {
	case "offsets":
		start.Offsets = map[int32]int64{}
		for _, pair := range strings.Split(words[1], ",") {
			partition, offset, _ := strings.Cut(pair, "=")
			start.Offsets[int32(number(partition))] = number(offset)
		}
	case "time":
		start.Time = time.UnixMilli(number(words[1]))
	case "group":
		start.Group = words[1]
		if len(words) > 2 {
			start.Records = int(number(words[2]))
		}
	}
	return start
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	Check(err)
	return value
}
