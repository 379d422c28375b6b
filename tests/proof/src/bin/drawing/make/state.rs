//! The states of a slot, from the list that a test of the state machine makes by running it.

use std::collections::{BTreeMap, BTreeSet};

use super::Result;
use super::svg::{Anchor, Canvas};

const LIST: &str = "../../src/engine/slot/state/transitions.txt";

/// Half of a state's width and height.
const HALF: (i32, i32) = (65, 22);
/// Where each state stands, by its middle.
const STATES: [(&str, (i32, i32)); 6] = [
    ("free", (85, 220)),
    ("asking", (330, 110)),
    ("held elsewhere", (690, 110)),
    ("held", (690, 330)),
    ("lingering", (430, 330)),
    ("releasing", (190, 330)),
];

/// How an arrow goes: its corners, and where its label stands.
type Way = (&'static [(i32, i32)], Anchor, (i32, i32));

const WAYS: [((&str, &str), Way); 18] = [
    (("free", "asking"), (&[(130, 198), (265, 108)], Anchor::End, (190, 146))),
    (("asking", "free"), (&[(275, 132), (150, 215)], Anchor::Start, (206, 194))),
    (
        ("asking", "asking"),
        (&[(305, 88), (315, 70), (345, 70), (355, 88)], Anchor::Middle, (330, 48)),
    ),
    (("asking", "held elsewhere"), (&[(395, 102), (625, 102)], Anchor::Middle, (510, 96))),
    (("held elsewhere", "asking"), (&[(625, 118), (395, 118)], Anchor::Middle, (530, 133))),
    (
        ("held elsewhere", "free"),
        (&[(690, 88), (690, 24), (60, 24), (60, 198)], Anchor::Middle, (530, 18)),
    ),
    (("asking", "held"), (&[(355, 132), (640, 308)], Anchor::End, (508, 246))),
    (("held elsewhere", "held"), (&[(700, 132), (700, 308)], Anchor::Start, (708, 210))),
    (
        ("held", "held"),
        (&[(730, 308), (736, 294), (748, 294), (754, 308)], Anchor::Middle, (752, 272)),
    ),
    (("held", "lingering"), (&[(625, 340), (495, 340)], Anchor::Middle, (560, 355))),
    (("lingering", "held"), (&[(495, 322), (625, 322)], Anchor::Middle, (556, 316))),
    (
        ("held", "releasing"),
        (&[(670, 352), (670, 388), (190, 388), (190, 352)], Anchor::Middle, (430, 383)),
    ),
    (
        ("held", "free"),
        (&[(710, 352), (710, 416), (40, 416), (40, 242)], Anchor::Middle, (430, 411)),
    ),
    (("held", "asking"), (&[(672, 308), (388, 132)], Anchor::Start, (560, 216))),
    (("lingering", "releasing"), (&[(365, 330), (255, 330)], Anchor::Middle, (310, 324))),
    (("lingering", "asking"), (&[(412, 308), (338, 132)], Anchor::Start, (414, 276))),
    (("releasing", "free"), (&[(160, 308), (105, 242)], Anchor::End, (124, 288))),
    (("releasing", "asking"), (&[(225, 308), (320, 132)], Anchor::End, (240, 250))),
];

/// A way from state to state that is drawn as text below: the thread that comes waits in the queue.
const STAYS: &str = "a thread comes";

pub(crate) fn draw() -> Result<String> {
    let list =
        std::fs::read_to_string(std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(LIST))?;
    let mut ways: BTreeMap<(&str, &str), BTreeSet<&str>> = BTreeMap::new();
    let mut stays = BTreeSet::new();
    for line in list.lines() {
        let [from, event, to] = line.split(" | ").collect::<Vec<_>>()[..] else {
            return Err(format!("{line}: no transition").into());
        };
        if from != to || event == "unlocked" || event == "the thread gives up" {
            ways.entry((from, to)).or_default().insert(event);
        } else if event == STAYS {
            stays.insert(from);
        }
    }
    let mut canvas = Canvas::default();
    let mut labels = Canvas::default();
    for ((from, to), (corners, anchor, place)) in WAYS {
        let events =
            ways.remove(&(from, to)).ok_or_else(|| format!("nothing leads from {from} to {to}"))?;
        arrow(&mut canvas, corners);
        let mut y = place.1;
        for line in label(from, to, &events) {
            labels.label("", anchor, (place.0, y), line);
            y += 14;
        }
    }
    if let Some(((from, to), _)) = ways.first_key_value() {
        return Err(format!("from {from} to {to} there is no arrow").into());
    }
    canvas.add(labels);
    for (name, (x, y)) in STATES {
        canvas.rect("box", (x - HALF.0, y - HALF.1), (2 * HALF.0, 2 * HALF.1));
        canvas.text("strong", Anchor::Middle, (x, y + 4), name);
    }
    let stays: Vec<&str> =
        STATES.iter().map(|state| state.0).filter(|name| stays.contains(name)).collect();
    let (last, rest) = stays.split_last().ok_or("no thread waits")?;
    let stays = format!(
        "A thread that comes while the slot is {} or {last} waits in the slot's queue.",
        rest.join(", ")
    );
    canvas.text("dim", Anchor::Start, (12, 444), &stays);
    canvas.finish(
        458,
        "The states of a slot",
        "An exclusive slot is free, asking, held elsewhere, held, lingering or releasing. Arrows show which event \
         leads from which state to which.",
    )
}

/// What stands beside an arrow.
fn label<'a>(from: &str, to: &str, events: &BTreeSet<&'a str>) -> Vec<&'a str> {
    if events.contains(STAYS) {
        return vec![STAYS];
    }
    let mut lines = Vec::new();
    for &event in events {
        match event {
            "the thread gives up" if from == "asking" && to == "free" => {
                lines.extend(["the thread", "gives up"]);
            }
            "a thread with other options comes" => {
                lines.extend(["a thread with", "other options comes"])
            }
            "unlocked" if to == "held" => lines.extend(["unlocked:", "handed off"]),
            event => lines.push(event),
        }
    }
    if to == "asking" && from != "free" && from != "lingering" {
        lines.push("→ the next asks");
    }
    lines
}

fn arrow(canvas: &mut Canvas, corners: &[(i32, i32)]) {
    let mut path = String::new();
    for (place, (x, y)) in corners.iter().enumerate() {
        path.push_str(&format!("{}{x} {y}", if place == 0 { 'M' } else { 'L' }));
    }
    canvas.path("line", &path);
    if let [.., before, end] = corners {
        canvas.head("head", *end, (end.0 - before.0, end.1 - before.1));
    }
}
