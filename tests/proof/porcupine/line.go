package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// A line of a history: one end of a call, or something that happened besides.
type line struct {
	at     int64
	client string
	phase  string
	op     string
	object string
	args   map[string]string
}

// A history, as it stands in a file.
type history struct {
	// What the comments at its head say, such as its nemesis.
	head map[string]string
	// For each kind of object: whether it holds always, or while clocks differ by at most the bound, or only what compares
	// the token.
	verdicts map[string]string
	lines    []line
}

func read(from io.Reader) (*history, error) {
	h := &history{head: map[string]string{}, verdicts: map[string]string{}}
	scanner := bufio.NewScanner(from)
	// The final content of a set is one line.
	scanner.Buffer(make([]byte, 1<<16), 1<<26)
	for number := 1; scanner.Scan(); number++ {
		text := scanner.Text()
		if rest, ok := strings.CutPrefix(text, "# "); ok {
			key, value, _ := strings.Cut(rest, " ")
			if key == "verdict" {
				kind, verdict, _ := strings.Cut(value, " ")
				h.verdicts[kind] = verdict
			} else {
				h.head[key] = value
			}
			continue
		}
		l, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w: %q", number, err, text)
		}
		if n := len(h.lines); n > 0 && h.lines[n-1].at > l.at {
			return nil, fmt.Errorf("line %d: it is earlier than the one before", number)
		}
		h.lines = append(h.lines, l)
	}
	return h, scanner.Err()
}

// Whether the machine kept some thread from a processor for so long that a lease may have ended between a look at it and a
// write: as if a holder had been stopped.
func (h *history) stalled() bool {
	lag, _ := strconv.Atoi(h.head["lag-ms"])
	lease, _ := strconv.Atoi(h.head["lease-ms"])
	return lag > lease/2
}

func parse(text string) (line, error) {
	words := strings.Split(text, " ")
	if len(words) < 3 {
		return line{}, fmt.Errorf("too few words")
	}
	at, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil {
		return line{}, err
	}
	l := line{at: at, client: words[1], phase: words[2], args: map[string]string{}}
	for place, word := range words[3:] {
		if key, value, ok := strings.Cut(word, "="); ok {
			l.args[key] = value
		} else if place == 0 {
			l.op = word
		} else if place == 1 {
			l.object = word
		} else {
			return line{}, fmt.Errorf("no name=value: %q", word)
		}
	}
	return l, nil
}

func (l line) number(name string) int64 {
	n, err := strconv.ParseInt(l.args[name], 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return never
	}
	if err != nil {
		panic(fmt.Sprintf("at %d: %s of %s is no number: %q", l.at, name, l.op, l.args[name]))
	}
	return n
}

func (l line) token() uint64 { return uint64(l.number("token")) }

// The process of a client, which is `process.thread`.
func process(client string) string {
	before, _, _ := strings.Cut(client, ".")
	return before
}

func kind(object string) string {
	before, _, _ := strings.Cut(object, ":")
	return before
}
