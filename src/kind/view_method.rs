//! What can be asked about a hold on any thread, without I/O.

/// The public methods of a type that has a [`Holding`](crate::engine::holding::Holding), which its method `holding`
/// returns. The doc comments of `fencing_token` say how the tokens of its kind are ordered.
macro_rules! view_methods {
    ($view:ident { $(#[$token:meta])* fencing_token }) => {
        // Callbacks of the user take these away otherwise. A panic leaves no hold half changed: it is
        // either counted or not, and the lock in Redis is released by unwinding.
        impl ::std::panic::UnwindSafe for $view {}
        impl ::std::panic::RefUnwindSafe for $view {}

        impl $view {
            $(#[$token])*
            ///
            /// Its value has no meaning beyond that order. Redis keeps the last token for about one lease after the
            /// last hold; while it is gone, the order rests on the server's clock.
            /// [Limits](crate::guide::limits#what-breaks-the-order-of-tokens) has the details.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($view), ", highest: &mut leasehold::FencingToken) {")]
            /// // What the resource does: it refuses a holder that is late.
            /// let token = guard.fencing_token();
            /// if token >= *highest {
            ///     *highest = token;
            ///     // … the write …
            /// }
            /// # }
            /// ```
            pub fn fencing_token(&self) -> $crate::FencingToken {
                self.holding().hold.token()
            }

            /// Whether the lease is still valid on this machine's clock. No I/O.
            ///
            /// The clock [counts through suspend](crate::guide::limits#suspend) on Linux and Android, and this turns
            /// false before the lease ends in Redis. If the key is deleted or taken earlier, this turns false when the
            /// client learns of it: at the next renewal at the latest, or at the end of a lease that is not renewed.
            /// True says nothing about the moment after, so check right before a write, and send the
            /// [token](Self::fencing_token) along.
            ///
            /// Once false it stays false, unless the lease is [recoverable](crate::Lease::recoverable_for): then it is
            /// true again when Redis has confirmed the hold, and nobody else has had the lock.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($view), ") {")]
            /// while guard.is_valid() {
            ///     // … one step, with guard.fencing_token() in each of its writes …
            /// #   break;
            /// }
            /// # }
            /// ```
            pub fn is_valid(&self) -> bool {
                !self.remaining().is_zero()
            }

            /// How long the lease is still valid; zero when it is over, be it lost or released. No I/O.
            ///
            /// After a hand-over by the [queue](crate::Wait::queue) that is at first two seconds and a command
            /// time-out at most. [`max_clock_skew`](crate::LockClientBuilder::max_clock_skew) is already
            /// deducted. The first renewal follows after about 200 ms and makes the lease whole.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($view), ") {")]
            /// let deadline = std::time::Instant::now() + guard.remaining();
            /// println!("with a fixed lease it must be done by {deadline:?}");
            /// # }
            /// ```
            pub fn remaining(&self) -> ::std::time::Duration {
                self.holding().remaining(self.access())
            }

            /// Why the lock was lost, or `None` if it was not: it is held, or was released, or its lease is over and
            /// [may come back](crate::Lease::recoverable_for). No I/O.
            ///
            /// ```
            #[doc = concat!("# fn demo(guard: &leasehold::", stringify!($view), ") {")]
            /// match guard.loss() {
            ///     Some(loss) => eprintln!("stopped: {}", loss.cause()),
            ///     None => println!("nothing is known to have gone wrong"),
            /// }
            /// # }
            /// ```
            pub fn loss(&self) -> Option<$crate::Loss> {
                self.holding().loss()
            }
        }

        impl ::std::fmt::Debug for $view {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($view))
                    .field("lock", self.holding().slot.target())
                    .field("fencing_token", &self.fencing_token())
                    .field("remaining", &self.remaining())
                    .finish()
            }
        }
    };
}

pub(super) use view_methods;
