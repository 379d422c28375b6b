//! What may go wrong, played through.

/// One thing that may go wrong, played through.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// Time moves in one of so many steps although threads can run; never where this is 0.
    pub(super) hurry: u32,
    pub(super) body: fn(),
}

/// The scenarios of one module: name, hurry, body.
pub(super) type Group = &'static [(&'static str, u32, fn())];
