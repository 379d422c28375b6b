package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/anishathalye/porcupine"
)

// How many holds the timeline of a legal history shows.
const shown = 60

// Writes the timelines of the objects of one kind.
func draw(name, kind string, all []*result, h *history) {
	if *timelines == "" {
		return
	}
	drawn := 0
	var sample *result
	for _, r := range all {
		switch r.verdict {
		case porcupine.Illegal:
			if drawn < mostTimelines {
				drawn++
				write(name+" "+r.object.name+" illegal", r.from, r.piece, h)
			}
		case porcupine.Ok:
			if sample == nil || len(r.object.steps) > len(sample.object.steps) {
				sample = r
			}
		}
	}
	if sample != nil {
		write(name+" "+kind+" legal", sample.model, begin(sample.object), h)
	}
}

func begin(o *object) []operation {
	order := inOrder(o.steps)
	return order.cut(0, min(shown, len(order)))
}

func write(title string, m porcupine.Model, steps []operation, h *history) {
	file := strings.NewReplacer(" ", "_", "/", "_", ":", "_").Replace(title) + ".html"
	path := filepath.Join(*timelines, file)
	history := plain(steps)
	last := int64(0)
	for _, s := range history {
		last = max(last, s.Call)
		if s.Return < never {
			last = max(last, s.Return)
		}
	}
	begin := last
	for i := range history {
		history[i].Return = min(history[i].Return, last+1)
		begin = min(begin, history[i].Call)
	}
	_, info := porcupine.CheckOperationsVerbose(m, history, 0)
	var notes []porcupine.Annotation
	for _, l := range h.lines {
		if l.phase == "nemesis" && l.at >= begin && l.at <= last {
			notes = append(notes, porcupine.Annotation{Tag: "nemesis", Start: l.at, Description: l.op + " " + l.object})
		}
	}
	info.AddAnnotations(notes)
	if err := os.MkdirAll(*timelines, 0o755); err != nil {
		panic(err)
	}
	if err := porcupine.VisualizePath(m, info, path); err != nil {
		panic(err)
	}
	fmt.Fprintf(os.Stderr, "timeline: %s\n", path)
}
