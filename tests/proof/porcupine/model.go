package main

import (
	"fmt"
	"hash/fnv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// One operation as the models see it: what was asked for, and what came of it.
type step struct {
	op string
	// Who: the client. A hold is told by its token.
	client string
	token  uint64
	// Of an upgrade: the token before it.
	before uint64
	// Of a reentrant lock: how often its thread has it.
	count int
	// Of a semaphore: the numbers of a permit, and how many may be had.
	slots []int
	limit int
	// Of an election: what the leader says. Of a set: the value that was added.
	word string
	// Of an addition: what was there before it. Of a read: all of it.
	saw    string
	length int
	// What nobody was told: it may have happened or not.
	unknown bool
}

func (s step) String() string {
	words := []string{s.op}
	add := func(is bool, form string, values ...any) {
		if is {
			words = append(words, fmt.Sprintf(form, values...))
		}
	}
	add(s.word != "", "%s", s.word)
	add(s.before > 0, "from …%06d", s.before%1e6)
	add(s.token > 0, "…%06d", s.token%1e6)
	add(s.count > 1, "×%d", s.count)
	add(s.slots != nil, "%v", s.slots)
	add(s.limit > 0, "of %d", s.limit)
	add(s.saw != "" && s.op == "add", "after %s", s.saw)
	add(s.op == "read" && s.length > 0, "%d values", s.length)
	add(s.unknown, "(unknown)")
	return strings.Join(words, " ")
}

// A model whose states are comparable values, and whose operations are steps.
func model[S comparable](init S, next func(S, step) (S, bool)) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return init },
		Step: func(state, input, _ any) (bool, any) {
			after, ok := next(state.(S), input.(step))
			return ok, after
		},
		DescribeOperation: func(input, _ any) string { return input.(step).String() },
		DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
	}
}

// A fenced mutex: one holder at a time, each with a token above all before it.
type mutex struct{ Holder, Last uint64 }

var mutexModel = model(mutex{}, func(m mutex, s step) (mutex, bool) {
	switch s.op {
	case "acquire":
		return mutex{s.token, s.token}, m.Holder == 0 && s.token > m.Last
	case "end":
		return mutex{0, m.Last}, m.Holder == s.token
	}
	panic(s.op)
})

// A reentrant lock: the client that has it may take it again, with the same token, and has it until the end of its
// outermost hold.
type reentrant struct {
	Holder, Last uint64
	Client       string
	Count        int
}

var reentrantModel = model(reentrant{}, func(m reentrant, s step) (reentrant, bool) {
	switch s.op {
	case "acquire":
		return reentrant{s.token, s.token, s.client, 1}, m.Holder == 0 && s.token > m.Last && s.count == 1
	case "enter":
		mine := m.Holder == s.token && m.Client == s.client
		m.Count++
		return m, mine && m.Count == s.count
	case "leave":
		m.Count--
		return m, m.Holder == s.token && m.Client == s.client && m.Count >= 1
	case "end":
		return reentrant{Last: m.Last}, m.Holder == s.token
	}
	panic(s.op)
})

const mostSlots = 16

// A semaphore: no number is had twice, no more are had than the limit in force during the call for them, and the tokens of
// each number grow.
type semaphore struct {
	Held [mostSlots]bool
	Last [mostSlots]uint64
}

var semaphoreModel = model(semaphore{}, func(m semaphore, s step) (semaphore, bool) {
	switch s.op {
	case "acquire":
		used := len(s.slots)
		for _, held := range m.Held {
			if held {
				used++
			}
		}
		for _, slot := range s.slots {
			if m.Held[slot] || s.token <= m.Last[slot] {
				return m, false
			}
			m.Held[slot], m.Last[slot] = true, s.token
		}
		return m, used <= s.limit
	case "end":
		for _, slot := range s.slots {
			if !m.Held[slot] || m.Last[slot] != s.token {
				return m, false
			}
			m.Held[slot] = false
		}
		return m, true
	}
	panic(s.op)
})

// A read-write lock: a writer is alone, and of the readers one at most is upgradable. A writer's token is above all
// before it, and a reader's not below that of a writer before it.
type access struct {
	Readers                             int
	Upgradable, Writer, LastWrite, Last uint64
}

var accessModel = model(access{}, func(m access, s step) (access, bool) {
	last := max(m.Last, s.token)
	switch s.op {
	case "read":
		ok := m.Writer == 0 && s.token >= m.LastWrite
		m.Readers, m.Last = m.Readers+1, last
		return m, ok
	case "upgradable":
		ok := m.Writer == 0 && m.Upgradable == 0 && s.token >= m.LastWrite
		m.Upgradable, m.Last = s.token, last
		return m, ok
	case "write":
		ok := m.Readers == 0 && m.Upgradable == 0 && m.Writer == 0 && s.token > m.Last
		m.Writer, m.LastWrite, m.Last = s.token, s.token, s.token
		return m, ok
	case "upgrade":
		ok := m.Readers == 0 && m.Upgradable == s.before && m.Writer == 0 && s.token > m.Last
		m.Upgradable, m.Writer, m.LastWrite, m.Last = 0, s.token, s.token, s.token
		return m, ok
	case "downgrade-to-read":
		ok := m.Writer == s.before && s.token >= m.LastWrite
		m.Writer, m.Readers, m.Last = 0, m.Readers+1, last
		return m, ok
	case "downgrade-to-upgradable":
		ok := m.Writer == s.before && s.token >= m.LastWrite
		m.Writer, m.Upgradable, m.Last = 0, s.token, last
		return m, ok
	case "end-read":
		m.Readers--
		return m, m.Readers >= 0
	case "end-upgradable":
		ok := m.Upgradable == s.token
		m.Upgradable = 0
		return m, ok
	case "end-write":
		ok := m.Writer == s.token
		m.Writer = 0
		return m, ok
	}
	panic(s.op)
})

// An election: one leader at a time, terms that grow, and a word that is the last one which the leader of that term said.
type election struct {
	Term, Last uint64
	Word       string
}

var electionModel = model(election{}, func(m election, s step) (election, bool) {
	switch s.op {
	case "acquire":
		return election{Term: s.token, Last: s.token}, m.Term == 0 && s.token > m.Last
	case "end":
		return election{Last: m.Last}, m.Term == s.token
	case "proclaim":
		if s.unknown && m.Term != s.token {
			return m, true
		}
		ok := m.Term == s.token
		m.Word = s.word
		return m, ok
	case "leader":
		return m, m.Term == s.token && m.Word == s.word
	}
	panic(s.op)
})

// One period of a job that runs once: one run at a time, none after a success, and a call that is skipped names it.
type period struct{ Run, Last, Done uint64 }

var periodModel = model(period{}, func(m period, s step) (period, bool) {
	switch s.op {
	case "run":
		return period{s.token, s.token, 0}, m.Run == 0 && m.Done == 0 && s.token > m.Last
	case "succeed":
		if s.unknown && m.Run != s.token {
			return m, true
		}
		ok := m.Run == s.token && m.Done == 0
		m.Run, m.Done = 0, s.token
		return m, ok
	case "end":
		// A success that nobody was told of may have ended it.
		if s.unknown && m.Run != s.token {
			return m, true
		}
		ok := m.Run == s.token
		m.Run = 0
		return m, ok
	case "skipped":
		return m, m.Done == s.token
	}
	panic(s.op)
})

// A set that is read, changed, and written back: each addition saw all those before it.
type set struct {
	Length int
	Last   string
	// Of all values, in their order.
	Hash uint64
}

var setModel = setFrom(set{})

func setFrom(begin set) porcupine.Model {
	return model(begin, func(m set, s step) (set, bool) {
		switch s.op {
		case "add":
			saw := s.unknown || s.length == m.Length && s.saw == m.Last
			return set{m.Length + 1, s.word, chain(m.Hash, s.word)}, saw
		case "read":
			return m, s.length == m.Length && s.saw == fmt.Sprint(m.Hash)
		}
		panic(s.op)
	})
}

func chain(hash uint64, value string) uint64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%d %s", hash, value)
	return h.Sum64()
}

func chainAll(values []string) uint64 {
	var hash uint64
	for _, value := range values {
		hash = chain(hash, value)
	}
	return hash
}
