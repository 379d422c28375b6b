//! What each script is made of: files of this folder, one after the other.
//!
//! Joined at compile time, so that each script has one digest on all machines. The order matters
//! twice: a Lua function is known only after its definition, and a fast path stands before the
//! functions that it does not need, because each call defines anew what it runs through.
//!
//! The proxies of the tests tell requests apart by the digests of their scripts. So `leasehold-support` compiles this
//! file too, and each of the two crates has its own `compose!`.

compose! {
    mutex {
        ACQUIRE: "mutex/acquire.lua", "token.lua", "line.lua", "mutex/hand_over.lua", "mutex/wait.lua";
        RELEASE: "mutex/release.lua", "token.lua", "line.lua", "mutex/hand_over.lua", "mutex/pass.lua";
        RENEW: "mutex/owner.lua", "renew.lua";
        TOUCH: "mutex/owner.lua", "touch.lua";
        FORCE: "token.lua", "line.lua", "mutex/hand_over.lua", "mutex/owner.lua", "mutex/layout.lua", "mutex/wake.lua",
            "force.lua";
        INSPECT: "mutex/layout.lua", "mutex/inspect.lua";
        REQUEST: "token.lua", "line.lua", "mutex/hand_over.lua", "mutex/request.lua";
    }
    quorum {
        ACQUIRE: "token.lua", "mutex/quorum/acquire.lua";
        RELEASE: "token.lua", "mutex/owner.lua", "mutex/quorum/wake.lua", "release.lua";
        RENEW: "mutex/owner.lua", "renew.lua";
        TOUCH: "mutex/owner.lua", "touch.lua";
        FORCE: "token.lua", "mutex/owner.lua", "mutex/layout.lua", "mutex/quorum/wake.lua", "force.lua";
        INSPECT: "mutex/layout.lua", "mutex/inspect.lua";
    }
    reentrant {
        ACQUIRE: "token.lua", "reentrant/owner.lua", "reentrant/acquire.lua", "reentrant/layout.lua",
            "reentrant/busy.lua";
        RELEASE: "token.lua", "reentrant/owner.lua", "reentrant/wake.lua", "release.lua";
        RENEW: "reentrant/owner.lua", "renew.lua";
        TOUCH: "reentrant/owner.lua", "touch.lua";
        FORCE: "token.lua", "reentrant/layout.lua", "reentrant/wake.lua", "reentrant/force.lua";
        INSPECT: "reentrant/layout.lua", "reentrant/inspect.lua";
    }
    election {
        ACQUIRE: "election/keys.lua", "election/layout.lua", "token.lua", "line.lua", "mutex/hand_over.lua",
            "election/word.lua", "election/begin.lua", "mutex/acquire.lua", "mutex/wait.lua", "election/acquired.lua";
        RELEASE: "election/keys.lua", "token.lua", "line.lua", "mutex/hand_over.lua", "election/word.lua",
            "election/begin.lua", "mutex/release.lua", "mutex/pass.lua", "election/released.lua";
        RENEW: "mutex/owner.lua", "election/begin.lua", "renew.lua", "election/renewed.lua";
        TOUCH: "mutex/owner.lua", "touch.lua";
        FORCE: "election/keys.lua", "token.lua", "line.lua", "mutex/hand_over.lua", "election/word.lua",
            "mutex/owner.lua", "election/layout.lua", "election/wake.lua", "force.lua";
        INSPECT: "election/keys.lua", "election/layout.lua", "election/word.lua", "election/begin.lua",
            "mutex/inspect.lua", "election/inspected.lua";
        PROCLAIM: "election/keys.lua", "token.lua", "election/word.lua", "mutex/owner.lua", "election/proclaim.lua";
    }
    once {
        READ: "once/read.lua";
    }
}

/// The kinds that are weighted locks. Each script begins with the file of its kind.
macro_rules! weighted {
    ($($kind:ident: $file:literal),+) => {
        compose! {
            $($kind {
                ACQUIRE: $file, "weighted/state.lua", "weighted/acquire.lua", "token.lua", "weighted/hold.lua",
                    "weighted/give.lua", "line.lua", "weighted/serve.lua", "weighted/wait.lua";
                RELEASE: $file, "weighted/state.lua", "weighted/release.lua", "token.lua", "weighted/hold.lua",
                    "weighted/give.lua", "line.lua", "weighted/serve.lua", "weighted/leave.lua";
                RENEW: $file, "weighted/state.lua", "token.lua", "weighted/renew.lua";
                TOUCH: $file, "weighted/state.lua", "token.lua", "weighted/owner.lua", "touch.lua";
                FORCE: $file, "weighted/state.lua", "token.lua", "weighted/hold.lua", "weighted/give.lua", "line.lua",
                    "weighted/serve.lua", "weighted/force.lua";
                INSPECT: $file, "weighted/state.lua", "token.lua", "weighted/inspect.lua";
                CHANGE: $file, "weighted/state.lua", "token.lua", "weighted/hold.lua", "weighted/give.lua", "line.lua",
                    "weighted/serve.lua", "weighted/change.lua";
                RESIZE: $file, "weighted/state.lua", "token.lua", "weighted/hold.lua", "weighted/give.lua", "line.lua",
                    "weighted/serve.lua", "weighted/resize.lua";
                TRANSACTION: $file, "weighted/state.lua", "token.lua", "weighted/owner.lua",
                    "weighted/transaction.lua";
                LOOK: $file, "weighted/state.lua", "weighted/look.lua";
            })+
        }
    };
}

weighted!(semaphore: "weighted/semaphore.lua", rw_lock: "weighted/rw_lock.lua");
