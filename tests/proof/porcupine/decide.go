package main

import (
	"sort"
	"time"

	"github.com/anishathalye/porcupine"
)

// How many holds are looked at together first, and how far the next look is from there.
const (
	window  = 60
	stride  = 30
	context = 5
)

// How many additions to a set are looked at together.
const additions = 24

// Decides about one object. To leave a whole hold out of a legal history leaves it legal: so what is illegal shows in a few
// holds mostly, and those are looked at first. Of an illegal history, returns such a piece, with
// the model that it is of.
func decide(m porcupine.Model, o *object) (porcupine.CheckResult, porcupine.Model, []operation) {
	if o.groups == 0 {
		// A set has no holds: each addition depends on those before it.
		verdict := legal(m, o.steps)
		if verdict == porcupine.Illegal {
			from, piece := lost(m, o.steps)
			return verdict, from, piece
		}
		return verdict, m, o.steps
	}
	order := inOrder(o.steps)
	for from := 0; len(order) > window && from < len(order); from += stride {
		to := min(from+window, len(order))
		if legal(m, order.cut(from, to)) == porcupine.Illegal {
			return porcupine.Illegal, m, order.least(m, from, to)
		}
	}
	verdict := legal(m, o.steps)
	if verdict == porcupine.Illegal {
		return verdict, m, order.least(m, 0, len(order))
	}
	return verdict, m, nil
}

// A few additions to an illegal set that cannot be, for people: from the set that the first of them saw. All of it, where
// no few show that.
func lost(m porcupine.Model, steps []operation) (porcupine.Model, []operation) {
	var known, unknown []operation
	for _, s := range steps {
		switch add := s.Input.(step); {
		case add.op == "add" && add.unknown:
			unknown = append(unknown, s)
		case add.op == "add":
			known = append(known, s)
		}
	}
	sort.SliceStable(known, func(i, j int) bool { return known[i].Call < known[j].Call })
	// A piece begins and ends where no addition is under way.
	var quiet []int
	returned := int64(0)
	for place, s := range known {
		if s.Call > returned {
			quiet = append(quiet, place)
		}
		returned = max(returned, s.Return)
	}
	quiet = append(quiet, len(known))
	for place := range quiet[:len(quiet)-1] {
		from, to := quiet[place], quiet[min(place+additions, len(quiet)-1)]
		piece := append([]operation{}, known[from:to]...)
		first, last := piece[0].Input.(step), piece[len(piece)-1].Call
		for _, s := range piece {
			if add := s.Input.(step); add.length < first.length {
				first = add
			}
		}
		for _, s := range unknown {
			if s.Call < last {
				piece = append(piece, s)
			}
		}
		begin := setFrom(set{Length: first.length, Last: first.saw})
		if legal(begin, piece) == porcupine.Illegal {
			return begin, piece
		}
	}
	return m, steps
}

func legal(m porcupine.Model, steps []operation) porcupine.CheckResult {
	limit := time.Duration(*search) * time.Second
	if tight, is := tighten(steps); is {
		return porcupine.CheckOperationsTimeout(m, plain(tight), limit)
	}
	return porcupine.CheckOperationsTimeout(m, plain(steps), limit)
}

func plain(steps []operation) []porcupine.Operation {
	all := make([]porcupine.Operation, len(steps))
	for i, s := range steps {
		all[i] = s.Operation
	}
	return all
}

// Holds in the order in which they were asked for, each with its operations. What is of no hold belongs to every piece, and
// comes first.
type holds [][]operation

func inOrder(steps []operation) holds {
	groups := map[int][]operation{}
	for _, s := range steps {
		groups[s.group] = append(groups[s.group], s)
	}
	all := groups[0]
	delete(groups, 0)
	order := make(holds, 0, len(groups)+1)
	for _, group := range groups {
		sort.SliceStable(group, func(i, j int) bool { return group[i].Call < group[j].Call })
		order = append(order, group)
	}
	sort.Slice(order, func(i, j int) bool { return order[i][0].Call < order[j][0].Call })
	return append(holds{all}, order...)
}

func (h holds) cut(from, to int) []operation {
	some := append([]operation{}, h[0]...)
	for _, group := range h[max(from, 1):to] {
		some = append(some, group...)
	}
	return some
}

// The fewest holds between these that cannot be by themselves, with some before and after them. What is illegal stays so
// when holds are added: the last one that matters is found by bisection, and so is the first.
func (h holds) least(m porcupine.Model, from, to int) []operation {
	bad := func(from, to int) bool { return legal(m, h.cut(from, to)) == porcupine.Illegal }
	last := from + 1 + sort.Search(to-from-1, func(n int) bool { return bad(from, from+n+1) })
	first := from + sort.Search(last-from, func(n int) bool { return !bad(from+n+1, last) })
	first, last = max(first-context, 0), min(last+context, len(h))
	if !bad(first, last) {
		return h.cut(from, to)
	}
	return h.cut(first, last)
}

// A hold of a read-write lock in one way: from its grant to its end, which may be a change.
type segment struct {
	token      uint64
	writes     bool
	grant, end int
}

// The tokens of a read-write lock decide the order of each two holds one of which is a writer's, so that most of what
// Porcupine would try is known to fail. An operation that must be after another one cannot be before the call of that, nor
// the other after the return of this one: the times between are left out. Returns false where that leaves nothing of an
// operation, or it is no read-write lock: then Porcupine has to decide with the times as they are.
func tighten(steps []operation) ([]operation, bool) {
	tight := append([]operation{}, steps...)
	var segments []*segment
	open := map[int]*segment{}
	// The operations of a hold follow each other by their calls.
	places := make([]int, len(tight))
	for i := range places {
		places[i] = i
	}
	sort.SliceStable(places, func(i, j int) bool { return tight[places[i]].Call < tight[places[j]].Call })
	for _, i := range places {
		s := tight[i].Input.(step)
		if held := open[tight[i].group]; held != nil {
			held.end = i
		}
		switch s.op {
		case "read", "upgradable", "write", "upgrade", "downgrade-to-read", "downgrade-to-upgradable":
			if s.op == "read" && tight[i].group == 0 {
				return nil, false
			}
			next := &segment{token: s.token, writes: s.op == "write" || s.op == "upgrade", grant: i, end: -1}
			segments, open[tight[i].group] = append(segments, next), next
		case "end-read", "end-upgradable", "end-write":
		default:
			return nil, false
		}
	}
	sort.SliceStable(segments, func(i, j int) bool {
		a, b := segments[i], segments[j]
		return a.token < b.token || a.token == b.token && a.writes && !b.writes
	})
	var all, writers int64
	for _, s := range segments {
		grant := &tight[s.grant]
		after := writers
		if s.writes {
			after = all
		}
		grant.Call = max(grant.Call, after)
		over := grant.Call
		if s.end >= 0 {
			tight[s.end].Call = max(tight[s.end].Call, grant.Call)
			over = tight[s.end].Call
		}
		all = max(all, over)
		if s.writes {
			writers = max(writers, over)
		}
	}
	all, writers = never, never
	for place := len(segments) - 1; place >= 0; place-- {
		s := segments[place]
		grant, before := &tight[s.grant], writers
		if s.writes {
			before = all
		}
		if s.end >= 0 {
			end := &tight[s.end]
			end.Return = min(end.Return, before)
			before = min(before, end.Return)
		}
		grant.Return = min(grant.Return, before)
		all = min(all, grant.Return)
		if s.writes {
			writers = min(writers, grant.Return)
		}
	}
	for _, s := range tight {
		if s.Call > s.Return {
			return nil, false
		}
	}
	return tight, true
}
