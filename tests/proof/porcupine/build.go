package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// An operation, and the hold that it is a part of: a hold is kept or left out of an excerpt as a whole.
type operation struct {
	porcupine.Operation
	group int
}

// All operations on one object.
type object struct {
	name  string
	limit int
	steps []operation
	// Reads of an election, by the term that they name; judged only if somebody knows of that term.
	reads   []operation
	terms   map[uint64]int
	resizes []resize
	// How many calls nobody judges: refused ones, unknown ones, reads of unknown terms.
	unjudged int
	lanes    map[string]int
	groups   int
}

// A change of a limit, which came into force at some moment of its call.
type resize struct {
	from, until int64
	limit       int
}

// A hold of a client, until it is known to be over.
type hold struct {
	group int
	token uint64
	slots []int
	// Of a read-write lock: read, upgradable or write.
	access string
	count  int
	// The last moment at which it is known to be valid, and the moment at which its grant or its change was told. Of one that
	// was over by then, nobody knows when it was granted, and when it ended.
	until, told int64
	// Its end is among the steps already. Inner guards may be released after that.
	over bool
	// Of a job: the period, and whether its success was recorded, or may have been.
	period      int64
	done, doubt bool
}

// What never returned has until the end of time.
const never = math.MaxInt64 / 4

type builder struct {
	objects map[string]*object
	pending map[string]line
	// For each client the moment since which its process has asked for what it asks for: its own call, or one of another
	// thread that was under way then. A grant to the one may be passed on to the other.
	since   map[string]int64
	holds   map[string]map[string]*hold
	calls   int
	unknown int
}

func build(h *history) *builder {
	b := &builder{
		objects: map[string]*object{}, pending: map[string]line{}, since: map[string]int64{},
		holds: map[string]map[string]*hold{},
	}
	for _, l := range h.lines {
		switch l.phase {
		case "call":
			b.calls++
			b.since[l.client] = b.asked(l)
			b.pending[l.client] = l
		case "ok", "no", "unknown":
			call, is := b.pending[l.client]
			if !is || call.op != l.op || call.object != l.object {
				panic(fmt.Sprintf("at %d: no call of %s ends here", l.at, l.op))
			}
			delete(b.pending, l.client)
			if l.phase == "unknown" {
				b.unknown++
			}
			b.end(call, l)
		case "valid":
			if held := b.held(l.client, l.object); held != nil {
				held.until = max(held.until, l.number("until"))
			}
		case "killed":
			b.killed(l)
		}
	}
	b.killed(line{at: never})
	for _, o := range b.objects {
		o.judgeReads()
		o.findLimits()
	}
	return b
}

// Since when the process of this call has asked for the same.
func (b *builder) asked(call line) int64 {
	since := call.at
	for client, other := range b.pending {
		if process(client) == process(call.client) && other.op == call.op && other.object == call.object {
			since = min(since, b.since[client])
		}
	}
	return since
}

func (b *builder) object(name string) *object {
	o := b.objects[name]
	if o == nil {
		o = &object{name: name, lanes: map[string]int{}, terms: map[uint64]int{}}
		b.objects[name] = o
	}
	return o
}

func (b *builder) held(client, object string) *hold { return b.holds[client][object] }

func (b *builder) hold(client, object string, h *hold) *hold {
	if b.holds[client] == nil {
		b.holds[client] = map[string]*hold{}
	}
	b.holds[client][object] = h
	return h
}

func (o *object) group() int {
	o.groups++
	return o.groups
}

func (o *object) lane(client string) int {
	lane, is := o.lanes[client]
	if !is {
		lane = len(o.lanes)
		o.lanes[client] = lane
	}
	return lane
}

func (o *object) operation(client string, group int, call, ret int64, s step) operation {
	s.client = client
	return operation{porcupine.Operation{ClientId: o.lane(client), Input: s, Call: call, Return: max(ret, call+1)}, group}
}

func (o *object) add(client string, group int, call, ret int64, s step) {
	o.steps = append(o.steps, o.operation(client, group, call, ret, s))
}

// The processes of a line are no more: their calls have no outcome, and their holds last until then.
func (b *builder) killed(dead line) {
	is := func(client string) bool { return dead.client == "" || process(client) == dead.client }
	for client, call := range b.pending {
		if is(client) {
			delete(b.pending, client)
			b.unknown++
			b.end(call, line{at: never, client: client, phase: "unknown", op: call.op, object: call.object, args: map[string]string{}})
		}
	}
	for client, holds := range b.holds {
		if !is(client) {
			continue
		}
		for name, h := range holds {
			b.over(client, name, h, min(h.until, dead.at), 0)
		}
		delete(b.holds, client)
	}
}

// A hold is over from this moment on; its release has returned at that one, if it did.
func (b *builder) over(client, name string, h *hold, from, returned int64) {
	if h.over {
		return
	}
	h.over = true
	if kind(name) == "election" && returned == 0 {
		// The server may say for a while that it still leads.
		returned = never
	}
	o := b.object(name)
	returned = max(returned, h.told)
	if kind(name) == "once" && !h.done {
		s := step{op: "end", token: h.token, unknown: h.doubt}
		b.object(inPeriod(name, h.period)).add(client, 0, from, returned, s)
	}
	op := "end"
	if h.access != "" {
		op += "-" + h.access
	}
	o.add(client, h.group, from, returned, step{op: op, token: h.token, slots: h.slots})
}

// When a hold ends that is released, changed or closed by this call.
func (h *hold) last(call line) int64 {
	if call.args["valid"] == "yes" {
		return call.at
	}
	return min(h.until, call.at)
}

func (b *builder) end(call, l line) {
	o := b.object(l.object)
	ok, held := l.phase == "ok", b.held(l.client, l.object)
	granted := func(s step, h *hold) {
		h.group, h.token, h.until, h.told, h.count = o.group(), l.token(), l.number("until"), l.at, 1
		b.hold(l.client, l.object, h)
		s.token, s.slots = h.token, h.slots
		o.terms[h.token] = h.group
		from := call.at
		if l.op == "campaign" {
			// Others may have seen the term before this thread asked for it.
			from = b.since[l.client]
		}
		o.add(l.client, h.group, from, l.at, s)
	}
	switch l.op {
	case "acquire", "campaign":
		switch {
		case !ok:
			o.unjudged++
		case held != nil && l.args["count"] != "":
			held.count = int(l.number("count"))
			o.add(l.client, held.group, call.at, l.at, step{op: "enter", token: l.token(), count: held.count})
		default:
			h := &hold{slots: slots(l.args["slots"])}
			if limit := call.args["limit"]; limit != "" {
				o.limit = int(call.number("limit"))
			}
			granted(step{op: "acquire", count: 1}, h)
		}
	case "release", "resign":
		b.release(call, l, held)
	case "resize":
		until := l.at
		if l.phase == "unknown" {
			until = never
		}
		if l.phase != "no" {
			o.resizes = append(o.resizes, resize{call.at, until, int(call.number("limit"))})
		}
	case "read", "upgradable", "write":
		if content, is := l.args["content"]; is {
			values := split(content)
			s := step{op: "read", length: len(values), saw: fmt.Sprint(chainAll(values))}
			o.add(l.client, 0, call.at, l.at, s)
		} else if ok {
			granted(step{op: l.op}, &hold{access: l.op})
		} else {
			o.unjudged++
		}
	case "upgrade", "downgrade":
		b.change(call, l, held)
	case "proclaim":
		s := step{op: "proclaim", token: call.token(), word: call.args["word"]}
		group := o.terms[s.token]
		switch {
		case ok:
			o.add(l.client, group, call.at, l.at, s)
		case l.phase == "unknown":
			s.unknown = true
			o.add(l.client, group, call.at, never, s)
		default:
			o.unjudged++
		}
	case "leader":
		s := step{op: "leader", word: l.args["word"]}
		switch {
		case !ok:
			o.unjudged++
		case l.args["term"] == "none":
			o.add(l.client, o.group(), call.at, l.at, s)
		default:
			s.token = uint64(l.number("term"))
			o.reads = append(o.reads, o.operation(l.client, 0, call.at, l.at, s))
		}
	case "begin":
		b.begin(call, l)
	case "succeed", "fail":
		b.finish(call, l, held)
	case "add":
		s := step{op: "add", word: call.args["value"]}
		switch {
		case ok:
			length, last, _ := strings.Cut(l.args["saw"], ":")
			s.length, _ = strconv.Atoi(length)
			s.saw = last
			o.add(l.client, 0, call.at, l.at, s)
		case l.phase == "unknown":
			s.unknown = true
			o.add(l.client, 0, call.at, never, s)
		default:
			o.unjudged++
		}
	default:
		panic(fmt.Sprintf("at %d: what is %q?", l.at, l.op))
	}
}

// A call to release, or to resign. The hold is over before its release is sent.
func (b *builder) release(call, l line, held *hold) {
	if held == nil {
		panic(fmt.Sprintf("at %d: a release without a hold", call.at))
	}
	o := b.object(l.object)
	from, is := held.last(call), call.args["valid"] == "yes"
	if held.count > 1 {
		held.count--
		if is && l.phase == "ok" {
			if !held.over {
				o.add(l.client, held.group, call.at, l.at, step{op: "leave", token: held.token})
			}
		} else {
			// It is lost, and the outer ones with it.
			b.over(l.client, l.object, held, from, from)
		}
		return
	}
	returned := from
	if is && l.phase == "ok" {
		returned = l.at
	} else if kind(l.object) == "election" {
		returned = 0
	}
	b.over(l.client, l.object, held, from, returned)
	delete(b.holds[l.client], l.object)
}

func (b *builder) change(call, l line, held *hold) {
	if held == nil {
		panic(fmt.Sprintf("at %d: a change without a hold", call.at))
	}
	o := b.object(l.object)
	switch {
	case l.phase == "ok":
		s := step{op: l.op, before: held.token, token: l.token()}
		if l.op == "upgrade" {
			held.access = "write"
		} else {
			s.op, held.access = l.op+"-to-"+l.args["to"], l.args["to"]
		}
		held.token, held.until, held.told = s.token, l.number("until"), l.at
		o.add(l.client, held.group, call.at, l.at, s)
	case l.phase == "no":
		// An upgrade whose time was over: it is upgradable still.
	default:
		// Somewhere within the call it was released.
		from := held.last(call)
		b.over(l.client, l.object, held, from, from)
		delete(b.holds[l.client], l.object)
	}
}

// A call of a job: its runs exclude each other as holds of a mutex do, and each period has one success.
func (b *builder) begin(call, l line) {
	switch {
	case l.phase == "ok":
		h := &hold{token: l.token(), until: l.number("until"), told: l.at, count: 1, period: l.number("period")}
		lock := b.object(l.object)
		h.group = lock.group()
		lock.add(l.client, h.group, call.at, l.at, step{op: "acquire", token: h.token, count: 1})
		b.hold(l.client, l.object, h)
		b.object(inPeriod(l.object, h.period)).add(l.client, 0, call.at, l.at, step{op: "run", token: h.token})
	case l.phase == "no" && l.args["done-by"] != "":
		o := b.object(inPeriod(l.object, l.number("period")))
		o.add(l.client, 0, call.at, l.at, step{op: "skipped", token: uint64(l.number("done-by"))})
	default:
		b.object(l.object).unjudged++
	}
}

func inPeriod(object string, period int64) string {
	return "period:" + object + "@" + fmt.Sprint(period)
}

func (b *builder) finish(call, l line, held *hold) {
	if held == nil {
		panic(fmt.Sprintf("at %d: the end of no run", call.at))
	}
	o := b.object(inPeriod(l.object, held.period))
	from := held.last(call)
	returned := from
	if l.phase == "ok" {
		returned = l.at
	}
	unknown := l.phase == "unknown"
	if l.op == "succeed" && l.phase != "no" {
		ret := l.at
		if unknown {
			ret = never
		}
		o.add(l.client, 0, call.at, ret, step{op: "succeed", token: held.token, unknown: unknown})
	}
	held.done, held.doubt = l.op == "succeed" && l.phase == "ok", unknown
	b.over(l.client, l.object, held, from, returned)
	delete(b.holds[l.client], l.object)
}

// A read of a term that no campaign has told of is of one that was granted to a call without an outcome.
func (o *object) judgeReads() {
	for _, read := range o.reads {
		group, is := o.terms[read.Input.(step).token]
		if !is {
			o.unjudged++
			continue
		}
		read.group = group
		o.steps = append(o.steps, read)
	}
	o.reads = nil
}

// Each grant of a semaphore gets the highest limit that may have been in force at some moment of its call: a permit that
// was granted before the limit was lowered may be passed on within its process until that hears of it.
func (o *object) findLimits() {
	if kind(o.name) != "semaphore" {
		return
	}
	all := append([]resize{{limit: o.limit}}, o.resizes...)
	for i := range o.steps {
		s := o.steps[i].Input.(step)
		if s.op != "acquire" {
			continue
		}
		call, ret := o.steps[i].Call, o.steps[i].Return
		for _, r := range all {
			if r.from <= ret && (r.until >= call || !replaced(r, all, call)) {
				s.limit = max(s.limit, r.limit)
			}
		}
		o.steps[i].Input = s
	}
}

// Whether another limit was certainly in force after this one, before that moment.
func replaced(r resize, all []resize, before int64) bool {
	for _, other := range all {
		if other.from > r.until && other.until < before {
			return true
		}
	}
	return false
}

func split(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

func slots(text string) []int {
	var all []int
	for _, word := range split(text) {
		slot, err := strconv.Atoi(word)
		if err != nil || slot < 0 || slot >= mostSlots {
			panic("a slot of " + text)
		}
		all = append(all, slot)
	}
	return all
}
