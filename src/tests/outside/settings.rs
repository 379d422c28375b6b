//! Settings in files, and what serde reads of holders and losses.

use leasehold_support::fuzz::Target;

use super::{is_error, is_shown};
use crate::base::inspection::Holder;
use crate::base::loss::Loss;
use crate::base::option::Lease;
use crate::base::token::FencingToken;
use crate::client::ClientSettings;

const WORDS: &[&str] = &[
    "{",
    "}",
    "\"",
    ":",
    ",",
    "[",
    "]",
    "null",
    "true",
    "\\u001b",
    "\"url\":\"redis://h\"",
    "\"never\"",
    "\"10s\"",
    "s ",
    "ms",
    "ns",
    "500ms",
    "1000ms",
    "y ",
    "584542046090y ",
    "18446744073709551615s ",
    "\"lock\":{",
    "\"lease\":{\"ttl\":\"",
    "\"renewed\":",
    "\"at_most\":\"",
    "\"max_hold\":",
    "\"wait\":\"",
    "\"release\":\"",
    "\"min_replicas\":{\"least\":1,\"within\":\"",
    "\"max_size\":",
    "\"min_idle\":",
    "\"command_timeout\":\"",
    "\"idle_timeout\":",
    "\"name_prefix\":\"",
    "\"label\":\"",
    "\"map_address\":{\"a:1\":\"",
    "\"owner\":",
    "\"origin\":{\"host\":\"",
    "\"cause\":\"deleted\"",
    "\"token\":",
];

#[test]
fn settings_of_any_text_are_read_or_refused() {
    Target::new("settings").words(WORDS).run(|input| {
        let mut shape = String::new();
        if let Ok(settings) = serde_json::from_slice::<ClientSettings>(input) {
            is_shown(&format!("{settings:?}"));
            // `connect_now` would talk to a server.
            let is_still = !String::from_utf8_lossy(input).contains("connect_now");
            shape += &match settings.builder() {
                Ok(builder) if is_still => {
                    builder.build().map_or_else(|error| is_error(&error), |_| "built".to_owned())
                }
                Ok(_) => "builder".to_owned(),
                Err(error) => is_error(&error),
            };
            shape += &settings
                .lock_options()
                .map_or_else(|error| is_error(&error), |_| "options".to_owned());
        }
        if let Ok(holder) = serde_json::from_slice::<Holder>(input) {
            is_shown(&format!("{holder} {holder:?}"));
            shape += "holder";
        }
        if let Ok(loss) = serde_json::from_slice::<Loss>(input) {
            is_shown(&loss.to_string());
            shape += "loss";
        }
        if serde_json::from_slice::<Lease>(input).is_ok() {
            shape += "lease";
        }
        if serde_json::from_slice::<FencingToken>(input).is_ok() {
            shape += "token";
        }
        shape
    });
}
