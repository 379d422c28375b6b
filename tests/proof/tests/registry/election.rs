//! Faults of the network at the requests of an election, and at the messages to its observers.

use std::thread;
use std::time::Instant;

use leasehold::{Election, Observation};
use leasehold_support::fault::network::{AtOperation, SILENCE};
use leasehold_support::fault::{Injector, Operation};
use leasehold_support::{Action, Direction};

use crate::common::{SOON, ask, ms, open, renewed, until};
use crate::kind::kinds;
use crate::trial::{CALL, COMMAND, KEY, LEASE, Trial};

kinds! {
    request_cut_at_campaign "request-cut@campaign" "A,S"
        = led_once(&at("request-cut", Operation::Acquire, Action::Cut));
    reply_lost_at_campaign "reply-lost@campaign" "A,S"
        = led_once(&at("reply-lost", Operation::Acquire, Action::LoseReply));
    doubled_at_campaign "doubled@campaign" "S"
        = led_once(&at("doubled", Operation::Acquire, Action::Twice));
    overtaken_at_campaign "overtaken@campaign" "A,S";
    reply_lost_at_campaign_join "reply-lost@campaign-join" "A,L"
        = led_next(&at("reply-lost", Operation::Acquire, Action::LoseReply).containing("join"));
    reply_lost_at_campaign_beat "reply-lost@campaign-beat" "A,L"
        = led_next(&at("reply-lost", Operation::Beat, Action::LoseReply));
    dropped_at_campaign_message "dropped@campaign-message" "L"
        = led_by_message(&granted("dropped", Action::Drop));
    doubled_at_campaign_message "doubled@campaign-message" "S,L"
        = led_by_message(&granted("doubled", Action::Twice));
    request_cut_at_proclaim "request-cut@proclaim" "A"
        = said(&at("request-cut", Operation::Proclaim, Action::Cut));
    reply_lost_at_proclaim "reply-lost@proclaim" "A"
        = said(&at("reply-lost", Operation::Proclaim, Action::LoseReply));
    silent_at_proclaim "silent@proclaim" "A"
        = said(&at("silent", Operation::Proclaim, SILENCE));
    doubled_at_proclaim "doubled@proclaim" "S"
        = said(&at("doubled", Operation::Proclaim, Action::Twice));
    overtaken_at_proclaim "overtaken@proclaim" "A,S";
    late_in_another_term_at_proclaim "late-in-another-term@proclaim" "A,S";
    reply_lost_at_resign "reply-lost@resign" "A,S"
        = resigned_once(&at("reply-lost", Operation::Release, Action::LoseReply));
    doubled_at_resign "doubled@resign" "S"
        = resigned_once(&at("doubled", Operation::Release, Action::Twice));
    reply_lost_at_leaders_renew "reply-lost@leaders-renew" "S,L"
        = renewed_again(&at("reply-lost", Operation::Renew, Action::LoseReply));
    dropped_at_change "dropped@change" "L" = observed(&change("dropped", Action::Drop));
    doubled_at_change "doubled@change" "S,L" = observed(&change("doubled", Action::Twice));
    late_at_change "late@change" "L" = observed(&change("late", Action::Delay(ms(200))));
    reply_lost_at_look "reply-lost@look" "L"
        = observed(&at("reply-lost", Operation::Inspect, Action::LoseReply));
    silent_at_look "silent@look" "L" = observed(&at("silent", Operation::Inspect, SILENCE));
}

fn at(name: &'static str, operation: Operation, action: Action) -> AtOperation {
    AtOperation::request(name, operation, action)
}

/// A message of a grant.
fn granted(name: &'static str, action: Action) -> AtOperation {
    AtOperation::reply(name, Operation::Message, action).containing("\r\ng ")
}

/// A message to observers.
fn change(name: &'static str, action: Action) -> AtOperation {
    AtOperation::reply(name, Operation::Message, action).containing("{k}:word")
}

/// An election behind the proxy, on a server that knows its scripts.
fn election(trial: &Trial) -> Election {
    let warm = open(&trial.server).election("warm").unwrap();
    let leadership = warm.campaign().unwrap();
    leadership.extend(ms(40_000)).unwrap();
    leadership.proclaim("warm").unwrap();
    warm.leader().unwrap();
    leadership.resign().unwrap();
    ask::<()>(&trial.server, &["DEL", "warm", "{warm}:fence"]);
    trial.client().election_with(KEY, renewed(LEASE)).unwrap()
}

/// The same election of a client that the proxy does not trouble.
fn rival(trial: &Trial) -> Election {
    open(&trial.server).election_with(KEY, renewed(LEASE)).unwrap()
}

/// What Redis says of the leader: its term, and its word.
fn leader(election: &Election) -> Option<(u64, Option<String>)> {
    let leader = election.leader().unwrap()?;
    let word = leader.value().map(|word| String::from_utf8(word.to_vec()).unwrap());
    Some((leader.term().expect("a term").get(), word))
}

/// Nobody leads, and nobody comes back to it.
#[track_caller]
fn given_back(trial: &Trial, rival: &Election) {
    until("nobody leads", || rival.leader().unwrap().is_none());
    trial.stays_away();
    assert!(rival.candidates().unwrap().is_empty());
    trial.litters(ms(LEASE * 3));
}

/// A request that is lost or comes twice makes one leader, of one term.
fn led_once(trial: &Trial, injector: &dyn Injector) {
    let (election, rival) = (election(trial), rival(trial));
    let active = trial.inject(injector);
    let leadership = trial.timed(COMMAND, || election.try_campaign()).unwrap().expect("ours");
    trial.prove(&active);
    assert_eq!(leader(&rival), Some((leadership.term().get(), None)));
    assert!(rival.try_campaign().unwrap().is_none());
    leadership.check().unwrap();
    leadership.resign().unwrap();
    given_back(trial, &rival);
}

/// The request runs only after its own clean-up has (rules 2 and 6).
fn overtaken_at_campaign(trial: &Trial) {
    let (election, rival) = (election(trial), rival(trial));
    let active = trial.inject(&at("overtaken", Operation::Acquire, Action::Hold));
    let error = trial.timed(COMMAND, || election.try_campaign()).map(drop).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error}");
    until("its clean-up has run", || {
        trial.proxy.tally(Direction::Request, Operation::Release).seen > 0
    });
    thread::sleep(COMMAND / 2);
    let before = trial.server.command_calls(&["eval", "evalsha"]);
    trial.heal(active);
    until("the request ran", || trial.server.command_calls(&["eval", "evalsha"]) > before);
    given_back(trial, &rival);
}

/// A candidate whose request or reply was lost has one place, and leads from there.
fn led_next(trial: &Trial, injector: &dyn Injector) {
    let (election, rival) = (election(trial), rival(trial));
    let first = rival.campaign().unwrap();
    let active = trial.inject(injector);
    thread::scope(|scope| {
        let waits = scope.spawn(|| election.try_campaign_for(SOON).unwrap().expect("its turn"));
        trial.prove(&active);
        until("it waits", || rival.candidates().unwrap().len() == 1);
        let term = first.term();
        first.resign().unwrap();
        let next = waits.join().unwrap();
        assert!(next.term() > term && next.is_valid());
        assert_eq!(leader(&rival), Some((next.term().get(), None)));
        next.resign().unwrap();
    });
    given_back(trial, &rival);
}

/// The message of a grant is lost or doubled.
fn led_by_message(trial: &Trial, injector: &dyn Injector) {
    let (election, rival) = (election(trial), rival(trial));
    let first = rival.campaign().unwrap();
    let active = trial.inject(injector);
    thread::scope(|scope| {
        let waits = scope.spawn(|| election.try_campaign_for(SOON).unwrap().expect("its turn"));
        until("it waits", || rival.candidates().unwrap().len() == 1);
        first.resign().unwrap();
        let next = waits.join().unwrap();
        trial.prove(&active);
        next.check().unwrap();
        assert_eq!(leader(&rival), Some((next.term().get(), None)));
        next.resign().unwrap();
    });
    given_back(trial, &rival);
}

/// A word whose request or reply was lost was said, or its outcome is unknown, and it can be said again.
fn said(trial: &Trial, injector: &dyn Injector) {
    let (election, rival) = (election(trial), rival(trial));
    let leadership = election.campaign().unwrap();
    let term = leadership.term().get();
    leadership.proclaim("before").unwrap();
    let active = trial.inject(injector);
    let outcome = trial.timed(CALL, || leadership.proclaim("word"));
    trial.prove(&active);
    if let Err(error) = outcome {
        assert!(error.is_unknown_outcome(), "{error}");
        assert!(leader(&rival).is_some_and(|(of, _)| of == term));
        leadership.proclaim("word").unwrap();
    }
    assert_eq!(leader(&rival), Some((term, Some("word".to_owned()))));
    leadership.resign().unwrap();
    given_back(trial, &rival);
}

/// A word that arrives after a later one of its term is not heard.
fn overtaken_at_proclaim(trial: &Trial) {
    let (election, rival) = (election(trial), rival(trial));
    let leadership = election.campaign().unwrap();
    let term = leadership.term().get();
    let active = trial.inject(&at("overtaken", Operation::Proclaim, Action::Hold));
    let error = trial.timed(CALL, || leadership.proclaim("early")).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error}");
    leadership.proclaim("late").unwrap();
    trial.heal(active);
    thread::sleep(ms(100));
    assert_eq!(leader(&rival), Some((term, Some("late".to_owned()))));
    leadership.resign().unwrap();
    given_back(trial, &rival);
}

/// A word that arrives when another leads is not the other's.
fn late_in_another_term_at_proclaim(trial: &Trial) {
    let (election, rival) = (election(trial), rival(trial));
    let first = election.campaign().unwrap();
    let active = trial.inject(&at("late", Operation::Proclaim, Action::Hold));
    let error = trial.timed(CALL, || first.proclaim("early")).unwrap_err();
    assert!(error.is_unknown_outcome(), "{error}");
    first.resign().unwrap();
    let second = rival.campaign().unwrap();
    trial.heal(active);
    thread::sleep(ms(100));
    assert_eq!(leader(&rival), Some((second.term().get(), None)));
    second.resign().unwrap();
    given_back(trial, &rival);
}

/// A release that runs twice, or whose reply was lost, ends its own term alone.
fn resigned_once(trial: &Trial, injector: &dyn Injector) {
    let (election, rival) = (election(trial), rival(trial));
    let first = election.campaign().unwrap();
    let active = trial.inject(injector);
    trial.released(trial.timed(CALL, || first.resign()));
    trial.prove(&active);
    let second = rival.try_campaign().unwrap().expect("nobody leads");
    second.proclaim("word").unwrap();
    thread::sleep(ms(100));
    assert_eq!(leader(&rival), Some((second.term().get(), Some("word".to_owned()))));
    second.resign().unwrap();
    given_back(trial, &rival);
}

/// The word lives as long as its leader.
fn renewed_again(trial: &Trial, injector: &dyn Injector) {
    let (election, rival) = (election(trial), rival(trial));
    let begin = Instant::now();
    let leadership = election.campaign().unwrap();
    leadership.proclaim("word").unwrap();
    let active = trial.inject(injector);
    while begin.elapsed() < ms(LEASE * 2 + 200) {
        assert!(leadership.is_valid(), "{:?}", leadership.loss());
        thread::sleep(ms(5));
    }
    trial.prove(&active);
    let expected = Some((leadership.term().get(), Some("word".to_owned())));
    assert_eq!(leader(&rival), expected);
    leadership.resign().unwrap();
    given_back(trial, &rival);
}

/// What an observer sees next.
fn next(observation: &mut Observation) -> Option<(u64, Option<String>)> {
    let observed = observation.next_timeout(SOON).unwrap().expect("a change");
    let leader = observed.leader()?;
    let word = leader.value().map(|word| String::from_utf8(word.to_vec()).unwrap());
    Some((leader.term().expect("a term").get(), word))
}

/// A message to an observer is lost, late or doubled, or its look is: each change is seen, once.
fn observed(trial: &Trial, injector: &dyn Injector) {
    let (election, rival) = (election(trial), rival(trial));
    let mut observation = election.observe().unwrap();
    assert_eq!(next(&mut observation), None);
    let first = rival.campaign().unwrap();
    assert_eq!(next(&mut observation), Some((first.term().get(), None)));
    // By now it listens.
    until("it hears", || {
        let heard: Vec<String> = ask(&trial.server, &["PUBSUB", "CHANNELS", "leasehold:{k}:word"]);
        !heard.is_empty()
    });
    let active = trial.inject(injector);
    first.proclaim("word").unwrap();
    let word = Some((first.term().get(), Some("word".to_owned())));
    assert_eq!(next(&mut observation), word);
    trial.prove(&active);
    assert_eq!(observation.next_timeout(ms(300)).unwrap(), None, "nothing has changed");
    first.resign().unwrap();
    assert_eq!(next(&mut observation), None);
    given_back(trial, &rival);
}
