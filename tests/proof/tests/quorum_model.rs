//! The argument for locks and tokens over several servers, checked in all cases of a small model:
//! three servers, two clients, a few ticks of time; requests and releases that arrive late, out of order
//! or never, servers that restart empty, clocks that are apart. Each rule is left out once, and missed.

use std::collections::HashSet;

const SERVERS: usize = 3;
/// In ticks: the longest lease, and how far in the future a request's deadline is.
const LEASE: u8 = 2;
const TIMEOUT: u8 = 1;

/// A rule that is left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    Nothing,
    /// A restarted server counts at once.
    NoQuarantine,
    /// A token is above what was seen, and not above the clocks.
    NotAboveClocks,
    /// A fence is kept for the lease only, not until the clock has come to its token.
    ShortFence,
    /// A server accepts the token that it accepted last.
    SameToken,
    /// A server accepts any token.
    AnyToken,
    /// A majority of those that were asked, not of all.
    MajorityOfAsked,
    /// The validity counts from the last answer.
    ValidFromAnswer,
    /// A grant needs no validity left.
    ValidityUnchecked,
    /// A renewal counts although only a minority has it.
    RenewedByAny,
    /// The next attempt has the value of the one before, whose release may be on its way still.
    AskedAgain,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Server {
    /// The client that has it, counted from 1, and until when. Two more for an attempt that it gave up,
    /// whose release may still come, at any time.
    owner: u8,
    until: u8,
    /// The last token, and the time of the server's clock until which it is kept.
    fence: u8,
    kept: u8,
    counts_from: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Client {
    #[default]
    Idle,
    Asking {
        sent: u8,
        token: u8,
        asked: u8,
        pending: u8,
        counted: u8,
        low: u8,
    },
    Holding {
        sent: u8,
        until: u8,
        token: u8,
        pending: u8,
    },
}

impl Client {
    /// The sets of servers that it has.
    fn sets(&mut self) -> [Option<&mut u8>; 3] {
        match self {
            Client::Idle => [None, None, None],
            Client::Asking { asked, pending, counted, .. } => {
                [Some(asked), Some(pending), Some(counted)]
            }
            Client::Holding { pending, .. } => [Some(pending), None, None],
        }
    }

    /// In which of them a server is.
    fn bits(mut self, server: usize) -> [bool; 3] {
        self.sets().map(|set| set.is_some_and(|set| *set & (1 << server) != 0))
    }

    /// Lets a server and the next change places.
    fn swap(&mut self, server: usize) {
        for set in self.sets().into_iter().flatten() {
            swap(set, server);
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct State {
    now: u8,
    servers: [Server; SERVERS],
    clients: [Client; 2],
    /// Where releases of a client's attempts are under way that its next ones could be hit by.
    strays: [u8; 2],
    /// The highest token that was granted.
    highest: u8,
    restarts: u8,
    rounds: u8,
}

struct Model {
    plant: Plant,
    /// What each server's clock is ahead by.
    ahead: [u8; SERVERS],
    restarts: u8,
    /// In how many rounds servers are asked, by both together. All of them may be in one tick, so tokens
    /// run ahead of the clocks by as many.
    rounds: u8,
    end: u8,
}

impl Model {
    fn clock(&self, state: &State, server: usize) -> u8 {
        state.now + self.ahead[server]
    }

    fn proposal(&self, state: &State, asked: u8, floor: u8) -> u8 {
        let clocks = members(asked).map(|server| self.clock(state, server) + TIMEOUT);
        match self.plant {
            Plant::NotAboveClocks => floor + 1,
            _ => clocks.fold(floor, u8::max) + 1,
        }
    }

    /// A request reaches a server. Answers its answer: accepted, and the last token if that is too high.
    fn deliver(
        &self,
        state: &mut State,
        who: u8,
        server: usize,
        sent: u8,
        token: u8,
    ) -> (bool, u8) {
        let clock = self.clock(state, server);
        let place = &mut state.servers[server];
        if state.now > sent + TIMEOUT {
            return (false, 0);
        }
        let free = place.owner == 0 || place.until <= state.now;
        if !free && place.owner != who {
            return (false, 0);
        }
        let last = if place.kept > clock { place.fence } else { 0 };
        let low = match self.plant {
            Plant::SameToken => last > token,
            Plant::AnyToken => false,
            _ => last >= token,
        };
        if low {
            return (false, last);
        }
        let until = if free { 0 } else { place.until };
        let lead = if self.plant == Plant::ShortFence { 0 } else { token.saturating_sub(clock) };
        place.owner = who;
        place.until = until.max(state.now + LEASE);
        (place.fence, place.kept) = (token, clock + LEASE + lead);
        (true, 0)
    }

    /// All that may happen next, or what must not.
    fn next(&self, state: &State) -> Result<Vec<State>, String> {
        let mut found = Vec::new();
        if state.now < self.end {
            found.push(State { now: state.now + 1, ..*state });
        }
        if state.restarts < self.restarts {
            for server in 0..SERVERS {
                let mut next = *state;
                // One that knows nothing has nothing to forget.
                if state.servers[server].fence == 0 {
                    continue;
                }
                let quarantine = if self.plant == Plant::NoQuarantine { 0 } else { LEASE };
                let counts_from = state.now + quarantine;
                next.servers[server] = Server { counts_from, ..Server::default() };
                next.restarts += 1;
                // Its connections break, and what was on its way to it is lost.
                for client in &mut next.clients {
                    if let Client::Asking { pending, .. } | Client::Holding { pending, .. } = client
                    {
                        *pending &= !(1 << server);
                    }
                }
                found.push(next);
            }
        }
        for client in 0..2 {
            self.steps(state, client, &mut found)?;
        }
        for server in 0..SERVERS {
            let owner = state.servers[server].owner;
            let mut next = *state;
            let place = &mut next.servers[server];
            if owner > 2 {
                (place.owner, place.until) = (0, 0);
                found.push(next);
            }
            for client in (0..2).filter(|client| state.strays[*client] & (1 << server) != 0) {
                let mut next = *state;
                next.strays[client] &= !(1 << server);
                let place = &mut next.servers[server];
                if owner == client as u8 + 1 {
                    (place.owner, place.until) = (0, 0);
                }
                found.push(next);
            }
        }
        Ok(found)
    }

    fn steps(&self, state: &State, client: usize, found: &mut Vec<State>) -> Result<(), String> {
        let who = client as u8 + 1;
        match state.clients[client] {
            Client::Idle => {
                let most = if state.rounds < self.rounds { 1 << SERVERS } else { 0 };
                for asked in 1_u8..most {
                    // Fewer than two are no majority of all.
                    if asked.count_ones() < 2 && self.plant != Plant::MajorityOfAsked {
                        continue;
                    }
                    let token = self.proposal(state, asked, 0);
                    found.push(begin(state, client, asked, token));
                }
            }
            Client::Asking { sent, token, asked, pending, counted, low } => {
                for server in members(pending) {
                    let mut next = *state;
                    let (accepted, last) = self.deliver(&mut next, who, server, sent, token);
                    let counts = accepted && state.servers[server].counts_from <= sent;
                    next.clients[client] = Client::Asking {
                        sent,
                        token,
                        asked,
                        pending: pending & !(1 << server),
                        counted: if counts { counted | 1 << server } else { counted },
                        low: low.max(last),
                    };
                    found.push(next);
                }
                if low > 0 && state.rounds < self.rounds {
                    found.push(begin(state, client, asked, self.proposal(state, asked, low)));
                }
                let need = match self.plant {
                    Plant::MajorityOfAsked => asked.count_ones() / 2 + 1,
                    _ => SERVERS as u32 / 2 + 1,
                };
                let from = if self.plant == Plant::ValidFromAnswer { state.now } else { sent };
                let valid = state.now < from + LEASE || self.plant == Plant::ValidityUnchecked;
                if counted.count_ones() >= need && valid {
                    found.push(self.grant(state, client, from, token, pending)?);
                }
                found.push(self.gone(state, client, true));
                found.push(self.gone(state, client, false));
            }
            Client::Holding { sent, until, token, pending } => {
                for server in members(pending) {
                    let mut next = *state;
                    self.deliver(&mut next, who, server, sent, token);
                    let pending = pending & !(1 << server);
                    next.clients[client] = Client::Holding { sent, until, token, pending };
                    found.push(next);
                }
                if state.now < until {
                    found.extend(self.renew(state, client, until));
                }
                found.push(self.gone(state, client, true));
                found.push(self.gone(state, client, false));
            }
        }
        Ok(())
    }

    /// A client lets go, and its release reaches all servers at once, or each late or never.
    fn gone(&self, state: &State, client: usize, reaches: bool) -> State {
        let mut next = *state;
        next.clients[client] = Client::Idle;
        for (server, place) in next.servers.iter_mut().enumerate() {
            if place.owner != client as u8 + 1 {
                continue;
            }
            if reaches {
                (place.owner, place.until) = (0, 0);
            } else if self.plant == Plant::AskedAgain {
                next.strays[client] |= 1 << server;
            } else {
                place.owner += 2;
            }
        }
        next
    }

    fn grant(
        &self,
        state: &State,
        client: usize,
        from: u8,
        token: u8,
        pending: u8,
    ) -> Result<State, String> {
        let mut next = *state;
        let until = match self.plant {
            Plant::ValidityUnchecked => state.now + 1,
            _ => from + LEASE,
        };
        next.clients[client] = Client::Holding { sent: from, until, token, pending };
        if let Client::Holding { until, .. } = state.clients[1 - client]
            && state.now < until
        {
            return Err(format!("two holders: {next:?}"));
        }
        if token <= state.highest {
            return Err(format!("token {token} after {}: {next:?}", state.highest));
        }
        next.highest = token;
        Ok(next)
    }

    fn renew(&self, state: &State, client: usize, valid: u8) -> Option<State> {
        let mut next = *state;
        let mut counted = 0;
        for place in &mut next.servers {
            if place.owner == client as u8 + 1 && place.until > state.now {
                place.until = state.now + LEASE;
                counted += usize::from(place.counts_from <= state.now);
            }
        }
        let enough = counted > SERVERS / 2 || self.plant == Plant::RenewedByAny;
        if let Client::Holding { until, .. } = &mut next.clients[client]
            && enough
        {
            *until = valid.max(state.now + LEASE);
        }
        (next != *state).then_some(next)
    }

    /// The same for all that matters: what is over is forgotten, and the clients are in order.
    fn tidy(&self, mut state: State) -> State {
        let now = state.now;
        let mut first = now;
        for client in &mut state.clients {
            match client {
                Client::Asking { sent, pending, .. } | Client::Holding { sent, pending, .. } => {
                    first = first.min(*sent);
                    if now > *sent + TIMEOUT {
                        *pending = 0;
                    }
                }
                Client::Idle => {}
            }
        }
        for (server, place) in state.servers.iter_mut().enumerate() {
            if place.until <= now {
                (place.owner, place.until) = (0, 0);
            }
            if place.kept <= now + self.ahead[server] {
                (place.fence, place.kept) = (0, 0);
            }
            if place.counts_from <= first {
                place.counts_from = 0;
            }
        }
        if state.clients[0] > state.clients[1] {
            state.clients.swap(0, 1);
            for place in &mut state.servers {
                place.owner = [0, 2, 1, 4, 3][usize::from(place.owner)];
            }
            state.strays.swap(0, 1);
        }
        for server in [0, 1, 0] {
            let [here, there] = [server, server + 1].map(|server| {
                let strays = state.strays.map(|set| set & (1 << server) != 0);
                (state.servers[server], state.clients.map(|client| client.bits(server)), strays)
            });
            if self.ahead[server] == self.ahead[server + 1] && here > there {
                state.servers.swap(server, server + 1);
                state.clients.iter_mut().for_each(|client| client.swap(server));
                state.strays.iter_mut().for_each(|set| swap(set, server));
            }
        }
        state
    }

    /// Looks at everything that may happen. Answers how many states there are, or what went wrong.
    fn explore(&self) -> Result<usize, String> {
        let mut seen = HashSet::new();
        let mut open = vec![State::default()];
        while let Some(state) = open.pop() {
            let next = self.next(&state)?.into_iter().map(|next| self.tidy(next));
            open.extend(next.filter(|next| seen.insert(*next)));
        }
        Ok(seen.len())
    }
}

fn members(servers: u8) -> impl Iterator<Item = usize> {
    (0..SERVERS).filter(move |server| servers & (1 << server) != 0)
}

fn begin(state: &State, client: usize, asked: u8, token: u8) -> State {
    let mut next = *state;
    next.rounds += 1;
    next.clients[client] =
        Client::Asking { sent: state.now, token, asked, pending: asked, counted: 0, low: 0 };
    next
}

fn swap(set: &mut u8, server: usize) {
    let (here, there) = (*set >> server & 1, *set >> (server + 1) & 1);
    *set &= !(0b11 << server);
    *set |= there << server | here << (server + 1);
}

fn model(plant: Plant, ahead: [u8; SERVERS], restarts: u8) -> Result<usize, String> {
    let rounds = if plant == Plant::Nothing { 2 } else { 3 };
    Model { plant, ahead, restarts, rounds, end: LEASE * 2 }.explore()
}

/// Clocks that are apart by more than a lease are borne while nobody forgets.
const APART: [u8; SERVERS] = [0, 0, 4];
const TOGETHER: [u8; SERVERS] = [0; SERVERS];

#[test]
fn exclusion_and_tokens_hold_with_forgetful_servers() {
    let states = model(Plant::Nothing, TOGETHER, 2).unwrap();
    assert!(states > 10_000, "{states}");
}

#[test]
fn exclusion_and_tokens_hold_with_clocks_apart() {
    let states = model(Plant::Nothing, APART, 0).unwrap();
    assert!(states > 10_000, "{states}");
}

/// The limit that the documentation tells of.
#[test]
fn forgetful_servers_with_clocks_apart_break_tokens() {
    let error = model(Plant::Nothing, APART, 2).unwrap_err();
    assert!(error.starts_with("token"), "{error}");
}

#[test]
fn each_rule_left_out_breaks_the_model() {
    for (plant, ahead, restarts) in [
        (Plant::NoQuarantine, TOGETHER, 2),
        (Plant::NotAboveClocks, TOGETHER, 0),
        (Plant::ShortFence, APART, 0),
        (Plant::SameToken, APART, 0),
        (Plant::AnyToken, APART, 0),
        (Plant::MajorityOfAsked, TOGETHER, 0),
        (Plant::ValidFromAnswer, TOGETHER, 0),
        (Plant::ValidityUnchecked, TOGETHER, 0),
        (Plant::RenewedByAny, TOGETHER, 2),
        (Plant::AskedAgain, TOGETHER, 0),
    ] {
        let outcome = model(plant, ahead, restarts);
        assert!(outcome.is_err(), "{plant:?}: {outcome:?}");
    }
}
