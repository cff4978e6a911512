// Package clients: what Go's Kafka clients read, a JSON array a line: partition, offset, time (ms), key, value, headers.
package clients

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"os"
	"time"
)

// Patience is how long a record below the end of a topic may take.
const Patience = 60 * time.Second

// Header of a record.
type Header struct {
	Name  string
	Value []byte
}

var out = bufio.NewWriter(os.Stdout)

func text(bytes []byte) any {
	if bytes == nil {
		return nil
	}
	return hex.EncodeToString(bytes)
}

// Row writes one.
func Row(partition int32, offset int64, at time.Time, key, value []byte, headers []Header) {
	shown := make([][2]any, 0, len(headers))
	for _, each := range headers {
		shown = append(shown, [2]any{each.Name, text(each.Value)})
	}
	line, err := json.Marshal([]any{partition, offset, at.UnixMilli(), text(key), text(value), shown})
	Check(err)
	out.Write(append(line, '\n'))
}

// Check ends the program with what went wrong.
func Check(err error) {
	if err != nil {
		os.Stderr.WriteString(err.Error() + "\n")
		os.Exit(1)
	}
}
