// Checks the histories that the proof crate records, by Porcupine: whether what the callers were told is what some order
// of one call after the other would have told them.
//
//	porcupine [-timelines FOLDER] [-search SECONDS] HISTORY...
//
// Prints a table, and writes timelines that a browser shows: of each object whose history is illegal, and of one of each
// kind that is legal. Exits with 1 if a history has another verdict than its head says.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"text/tabwriter"

	"github.com/anishathalye/porcupine"
)

var (
	timelines = flag.String("timelines", "", "the folder for timelines; none unless it is named")
	search    = flag.Int("search", 600, "for how many seconds at most an order is sought for each object")
)

// How many timelines of illegal objects each history gets.
const mostTimelines = 3

// What came of one object.
type result struct {
	object  *object
	model   porcupine.Model
	verdict porcupine.CheckResult
	// Of an illegal history, what cannot be, and from which state on.
	from  porcupine.Model
	piece []operation
}

func (o *object) model() porcupine.Model {
	switch kind(o.name) {
	case "mutex", "once":
		return mutexModel
	case "reentrant":
		return reentrantModel
	case "semaphore":
		return semaphoreModel
	case "rwlock":
		return accessModel
	case "election":
		return electionModel
	case "period":
		return periodModel
	case "set", "transaction", "tokens":
		return setModel
	}
	panic("no model for " + o.name)
}

func main() {
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "history\tcalls\tunknown\tkind\tobjects\toperations\tillegal\tverdict")
	sums, right := map[group]*sum{}, true
	for _, path := range flag.Args() {
		right = check(path, table, sums) && right
	}
	table.Flush()
	fmt.Println()
	printSums(sums)
	if !right {
		fmt.Println("NOT AS IT MUST BE")
		os.Exit(1)
	}
}

// What is summed up: the objects of one kind, over one topology.
type group struct{ topology, kind string }

// The sum over all histories.
type sum struct{ objects, operations, unjudged, illegal, fenced int }

// Checks one history, and returns whether it is as its head says.
func check(path string, table *tabwriter.Writer, sums map[group]*sum) bool {
	file, err := os.Open(path)
	if err != nil {
		panic(err)
	}
	h, err := read(file)
	file.Close()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", path, err)
		return false
	}
	b := build(h)
	results := judge(b)
	name := strings.TrimSuffix(filepath.Base(path), ".txt")
	illegal, byKind := map[string]bool{}, map[string][]*result{}
	for _, r := range results {
		byKind[kind(r.object.name)] = append(byKind[kind(r.object.name)], r)
		if r.verdict == porcupine.Illegal {
			illegal[r.object.name] = true
		}
	}
	right, first := true, true
	for _, k := range sorted(byKind) {
		all := byKind[k]
		of := group{h.head["topology"], k}
		if sums[of] == nil {
			sums[of] = &sum{}
		}
		s, word := sums[of], h.verdicts[k]
		if word == "" {
			word = "always"
		}
		// Or while clocks differ by at most the bound, as those of one machine do.
		must := word == "always" || word == "bound"
		operations, bad, undecided, open := 0, 0, 0, 0
		for _, r := range all {
			operations += len(r.object.steps)
			s.unjudged += r.object.unjudged
			switch r.verdict {
			case porcupine.Illegal:
				bad++
				if is := fenced(r.object.name, b, h, illegal); is {
					s.fenced++
				} else {
					open++
				}
			case porcupine.Unknown:
				undecided++
			}
		}
		s.objects += len(all)
		s.operations += operations
		s.illegal += bad
		said := word
		switch {
		case undecided > 0:
			said, right = fmt.Sprintf("%s: UNDECIDED %d", word, undecided), false
		case bad > 0 && must && k == "set" && h.stalled():
			said = fmt.Sprintf("void: the machine stood still for %s ms", h.head["lag-ms"])
		case bad > 0 && must:
			said, right = word+": BROKEN", false
		case open > 0:
			said, right = fmt.Sprintf("%s: NOT FENCED %d", word, open), false
		case !must:
			said = fmt.Sprintf("%s: %d fenced", word, bad)
		}
		label, calls, unknown := "", "", ""
		if first {
			label, calls, unknown, first = name, fmt.Sprint(b.calls), fmt.Sprint(b.unknown), false
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", label, calls, unknown, k, len(all), operations, bad, said)
		draw(name, k, all, h)
	}
	return right
}

func sorted[T any](all map[string]T) []string {
	keys := make([]string, 0, len(all))
	for key := range all {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

// Whether the writes under an illegal lock compare tokens, and none of them was lost.
func fenced(name string, b *builder, h *history, illegal map[string]bool) bool {
	guarded := "tokens:" + strings.TrimPrefix(name, "set:")
	// Where all writes of a history do, there may have been none.
	found := h.verdicts["tokens"] == "always"
	for other, o := range b.objects {
		if other == guarded || strings.HasPrefix(other, guarded+"/") {
			if illegal[other] {
				return false
			}
			found = found || len(o.steps) > 0
		}
	}
	return found
}

// Checks all objects, several at a time.
func judge(b *builder) []*result {
	var results []*result
	for _, name := range sorted(b.objects) {
		if o := b.objects[name]; len(o.steps) > 0 {
			results = append(results, &result{object: o, model: o.model()})
		}
	}
	var next, wait = make(chan *result), sync.WaitGroup{}
	for range runtime.NumCPU() {
		wait.Add(1)
		go func() {
			defer wait.Done()
			for r := range next {
				r.verdict, r.from, r.piece = decide(r.model, r.object)
			}
		}()
	}
	for _, r := range results {
		next <- r
	}
	close(next)
	wait.Wait()
	return results
}

func printSums(sums map[group]*sum) {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "topology\tkind\tobjects\toperations\tnot judged\tillegal\tof these fenced\t")
	var groups []group
	for of := range sums {
		groups = append(groups, of)
	}
	sort.Slice(groups, func(i, j int) bool {
		a, b := groups[i], groups[j]
		return a.topology < b.topology || a.topology == b.topology && a.kind < b.kind
	})
	var all sum
	row := func(of group, s *sum) {
		fmt.Fprintf(table, "%s\t%s\t%d\t%d\t%d\t%d\t%d\t\n",
			of.topology, of.kind, s.objects, s.operations, s.unjudged, s.illegal, s.fenced)
	}
	for _, of := range groups {
		s := sums[of]
		row(of, s)
		all.objects += s.objects
		all.operations += s.operations
		all.unjudged += s.unjudged
		all.illegal += s.illegal
		all.fenced += s.fenced
	}
	row(group{"all", ""}, &all)
	table.Flush()
}
