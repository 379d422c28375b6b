//! The loop of `top`: keys, signals and frames in, a screen out.

use std::process::ExitCode;
use std::time::Duration;

use ratatui::crossterm::event::{self, Event, KeyCode, KeyEvent, KeyModifiers};

use super::draw::{draw, page};
use super::model::{Action, Model, Order};
use super::reader::{Frame, Reader, ReaderGone};
use super::screen::{Screen, Signals, end_by};
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
    let signals = Signals::catch()?;
    let mut model = Model::new(order);
    model.update(first.rows, first.took);
    // https://no-color.org: any value but an empty one.
    let has_colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let mut screen = Screen::take()?;
    let end = show(&mut screen, &mut model, reader, &signals, has_colour);
    // Before anything is printed, or the program ends by a signal.
    drop(screen);
    if let End::Signal(signal) = end? {
        end_by(signal)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(
    screen: &mut Screen,
    model: &mut Model,
    reader: &Reader,
    signals: &Signals,
    has_colour: bool,
) -> Result<End, Failure> {
    loop {
        screen.terminal.draw(|frame| draw(model, frame.area(), frame.buffer_mut(), has_colour))?;
        // Nothing is drawn until something changes.
        let mut has_changed = false;
        while !has_changed {
            if let Some(signal) = signals.end() {
                return Ok(End::Signal(signal));
            }
            let event = if event::poll(LOOK)? { Some(event::read()?) } else { None };
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
        Ok(Some(Ok(frame))) => model.update(frame.rows, frame.took),
        Ok(Some(Err(error))) => model.fail(error),
        Ok(None) => return Ok(false),
        Err(ReaderGone) => {
            return Err(Failure::new(status::INTERNAL, "the reading of locks has ended"));
        }
    }
    Ok(true)
}
