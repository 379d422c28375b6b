//! The loop of `top`: keys, signals and frames in, a screen out.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};
use signal_hook::consts::SIGHUP;

use super::draw::{draw, page};
use super::input::{Input, await_hang_up, await_input};
use super::model::{Action, Model, Order};
use super::reader::{Frame, Reader, ReaderGone};
use super::screen::{Screen, Signals, end_by};
use super::watch::Watch;
use crate::failure::Failure;
use crate::status;

/// How long a signal or a frame waits at most until it is noticed.
const LOOK: Duration = Duration::from_millis(100);

/// Why the loop ended.
enum End {
    Quit,
    Signal(i32),
}

pub(super) fn run(first: Frame, reader: &Reader, order: Order) -> Result<ExitCode, Failure> {
    let signals = Arc::new(Signals::catch()?);
    let mut model = Model::new(order);
    model.denied = first.found.denied;
    model.update(first.rows, first.took);
    // https://no-color.org: any value but an empty one.
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen::take()?;
    let watch = Watch::start(Arc::clone(&signals))?;
    let mut end = show(&mut screen, &mut model, reader, &signals, has_colour);
    // Before anything is printed, or the program ends by a signal.
    match await_hang_up(Duration::ZERO) {
        Ok(false) => drop(screen),
        // Nothing can be given back. What failed on a terminal that is gone, failed because of that.
        _ => {
            std::mem::forget(screen);
            end = Ok(End::Signal(SIGHUP));
        }
    }
    drop(watch);
    if let End::Signal(signal) = end? {
        end_by(signal)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The next event, for which it waits no longer than [`LOOK`]. `is_first` is false after another event: more of them may
/// have come with it, which the terminal does not have any more.
fn next_event(is_first: bool) -> Result<Option<Event>, Failure> {
    let event = if event::poll(Duration::ZERO)? { Some(event::read()?) } else { None };
    if is_first && event.is_none() {
        // It changed its size, or has the rest of a long text, of which its reader hears with the next key.
        std::thread::sleep(LOOK);
    }
    Ok(event)
}

fn show(
    screen: &mut Screen,
    model: &mut Model,
    reader: &Reader,
    signals: &Signals,
    has_colour: bool,
) -> Result<End, Failure> {
    let mut had_event = false;
    loop {
        screen.terminal.draw(|frame| draw(model, frame.area(), frame.buffer_mut(), has_colour))?;
        // Nothing is drawn until something changes.
        let mut has_changed = false;
        while !has_changed {
            if let Some(signal) = signals.end() {
                return Ok(End::Signal(signal));
            }
            let input = await_input(if had_event { Duration::ZERO } else { LOOK })?;
            if input == Input::HungUp {
                return Ok(End::Signal(SIGHUP));
            }
            let event = next_event(input == Input::Some && !had_event)?;
            had_event = event.is_some();
            let key = event.as_ref().and_then(Event::as_key_press_event);
            // The terminal sends no signals for these while the program has it.
            let is_control = |letter| {
                key.is_some_and(|key| {
                    key == KeyEvent::new(KeyCode::Char(letter), KeyModifiers::CONTROL)
                })
            };
            if is_control('c') {
                return Ok(End::Quit);
            }
            if is_control('z') || signals.take_stop() {
                screen.stop()?;
                has_changed = true;
            } else if let Some(key) =
                key.filter(|key| !key.modifiers.contains(KeyModifiers::CONTROL))
            {
                match model.key(key.code, page(screen.terminal.size()?.height)) {
                    Action::Quit => return Ok(End::Quit),
                    Action::Pause(pause) => reader.pause(pause),
                    Action::None => {}
                }
                has_changed = true;
            }
            has_changed |= matches!(event, Some(Event::Resize(..))) | take(reader, model)?;
        }
    }
}

/// Takes a frame, if there is one.
fn take(reader: &Reader, model: &mut Model) -> Result<bool, Failure> {
    match reader.take() {
        Ok(Some(Ok(frame))) => {
            model.denied = frame.found.denied;
            model.update(frame.rows, frame.took);
        }
        Ok(Some(Err(error))) => model.fail(error),
        Ok(None) => return Ok(false),
        Err(ReaderGone) => {
            return Err(Failure::new(status::INTERNAL, "the reading of locks has ended"));
        }
    }
    Ok(true)
}
