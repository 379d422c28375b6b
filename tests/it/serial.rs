//! What serde makes of the public types, and the settings of a client in a file. The form is stable: a change of
//! these texts is a change for users.

use std::fmt::Debug;
use std::time::Duration;

use leasehold::{
    Access, ClientSettings, DistributedLock as _, FencingToken, Holder, Lease, LockClient,
    LockOptions, Loss, LossCause, Release, Wait,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{from_str, to_string};

use crate::common::{ask, fixed, ms, names, open, patient, renewed, server};

/// It is written as this text, and read again as it was.
#[track_caller]
fn pinned<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, text: &str) {
    assert_eq!(to_string(value).unwrap(), text);
    assert_eq!(from_str::<T>(text).unwrap(), *value);
}

#[test]
fn json_of_every_type_is_as_documented() {
    pinned(&from_str::<FencingToken>("1795627722131071").unwrap(), "1795627722131071");
    for (access, text) in [
        (Access::Read, r#""read""#),
        (Access::UpgradableRead, r#""upgradable_read""#),
        (Access::Write, r#""write""#),
    ] {
        pinned(&access, text);
    }
    for (cause, text) in [
        (LossCause::Expired, r#""expired""#),
        (LossCause::RenewalsUsedUp, r#""renewals_used_up""#),
        (LossCause::Taken, r#""taken""#),
        (LossCause::Deleted, r#""deleted""#),
        (LossCause::Unreachable, r#""unreachable""#),
        (LossCause::Refused, r#""refused""#),
        (LossCause::MaxHold, r#""max_hold""#),
        (LossCause::ShutDown, r#""shut_down""#),
    ] {
        pinned(&cause, text);
    }
    let text = r#"{"ttl":"30s","renewed":true,"at_most":null,"recoverable_for":null}"#;
    pinned(&Lease::default(), text);
    let lease = Lease::fixed(ms(1_500)).at_most(Duration::from_secs(3_600));
    let text = r#"{"ttl":"1500ms","renewed":false,"at_most":"3600s","recoverable_for":null}"#;
    pinned(&lease, text);
    let lease = Lease::renewed(ms(3_000)).recoverable_for(Duration::from_secs(27));
    pinned(&lease, r#"{"ttl":"3s","renewed":true,"at_most":null,"recoverable_for":"27s"}"#);
    let text = r#"{"owner":"1q:c:1:9:7:web-3:billing","origin":{"host":"web-3","pid":7,"label":"billing"},"token":12,"since":"1001us","ttl":"29s","overdue":null,"slots":[],"access":"write"}"#;
    pinned(&from_str::<Holder>(text).unwrap(), text);
    let text = r#"{"name":"orders:42","token":12,"cause":"deleted","renewed":true}"#;
    pinned(&from_str::<Loss>(text).unwrap(), text);
}

/// It is read as it was written.
#[track_caller]
fn round<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T) {
    let text = to_string(value).unwrap();
    assert_eq!(from_str::<T>(&text).unwrap(), *value, "{text}");
}

#[test]
fn holders_and_losses_of_a_server_are_read_as_written() {
    let server = server();
    let client = patient(LockClient::builder(server.url())).label("billing").build().unwrap();
    for name in [b"x".as_slice(), b"\xff\0"] {
        let lock = client.mutex_with(name, renewed(6_000)).unwrap();
        let guard = lock.lock().unwrap();
        round(&lock.holder().unwrap().expect("a holder"));
        round(&guard.fencing_token());
        assert!(lock.force_release().unwrap());
        assert!(guard.check().is_err());
        let loss = guard.loss().expect("a loss");
        assert_eq!(loss.name(), name);
        round(&loss);
    }
    let reentrant = client.reentrant("r").unwrap();
    let _guard = reentrant.lock().unwrap();
    round(&open(&server).reentrant("r").unwrap().holder().unwrap().expect("a holder"));
    let permit = client.semaphore("s", 3).unwrap().acquire_many(2).unwrap();
    let holders = client.semaphore("s", 3).unwrap().holders().unwrap();
    assert_eq!(holders[0].slots().len(), 2);
    round(&holders[0]);
    permit.release().unwrap();
    let _reader = client.rw_lock("w").unwrap().read().unwrap();
    let seen = client.rw_lock("w").unwrap().inspect().unwrap();
    assert_eq!(seen.holders()[0].access(), Some(Access::Read));
    round(&seen.holders()[0]);
    // A foreign owner may be any bytes.
    ask::<()>(&server, &["SET", "foreign", "other", "PX", "60000"]);
    round(&client.mutex("foreign").unwrap().holder().unwrap().expect("a holder"));
}

#[test]
fn text_that_another_program_wrote_is_cleaned() {
    let holder = r#"{"owner":[255,0],"origin":{"host":"a\u001b[31m\n","pid":null,"label":null},"token":null,"since":null,"ttl":null,"access":null}"#;
    let holder: Holder = from_str(holder).unwrap();
    assert_eq!((holder.owner(), holder.host()), (b"\xff\0".as_slice(), Some("a[31m")));
    for wrong in [
        r#"{"owner":[256],"origin":null,"token":null,"since":null,"ttl":null,"access":null}"#,
        r#"{"owner":"a","origin":null,"token":-1,"since":null,"ttl":null,"access":null}"#,
        r#"{"owner":"a","origin":null,"token":null,"since":"soon","ttl":null,"access":null}"#,
    ] {
        assert!(from_str::<Holder>(wrong).is_err(), "{wrong}");
    }
    for wrong in [r#"{"ttl":"10"}"#, r#"{"ttl":"-1s"}"#, r#"{"tll":"10s"}"#, r#"{"ttl":""}"#] {
        assert!(from_str::<Lease>(wrong).is_err(), "{wrong}");
    }
    let error = from_str::<Lease>(r#"{"ttl":"10 parsecs"}"#).unwrap_err().to_string();
    assert!(error.contains("invalid lease") && error.contains("500ms"), "{error}");
}

const ALL: &str = r#"{
    "url": "redis://localhost:6379/2",
    "connect_timeout": "300ms", "command_timeout": "500ms",
    "max_size": 16, "min_idle": 2, "max_idle": 4, "max_wait": "2s",
    "idle_timeout": "never", "max_lifetime": "1h", "test_on_borrow": true,
    "give_up_after": "30s", "slow_wait": "never", "max_clock_skew": "50ms", "announce": false, "connect_now": false,
    "reentrant_by_key": false,
    "name_prefix": "shop:", "label": "billing",
    "lock": {
        "lease": { "ttl": "10s", "renewed": false, "at_most": "1m" },
        "max_hold": "5m", "max_renewals": 9, "wait": "spin", "release": "watch",
        "local_handoffs": 3, "linger": "20ms", "reentrant": false, "max_waiters": 8,
        "min_replicas": { "least": 1, "within": "100ms" },
        "min_fsyncs": { "local": true, "replicas": 1, "within": "200ms" }
    }
}"#;

#[test]
fn settings_of_a_file_are_those_of_the_setters() {
    let settings: ClientSettings = from_str(ALL).unwrap();
    let options = LockOptions::new()
        .lease(Lease::fixed(ms(10_000)).at_most(ms(60_000)))
        .max_hold(ms(300_000))
        .max_renewals(9)
        .wait(Wait::spin())
        .release(Release::watch())
        .local_handoffs(3)
        .linger(ms(20))
        .reentrant(false)
        .max_waiters(8)
        .min_replicas(1, ms(100))
        .min_fsyncs(true, 1, ms(200));
    assert_eq!(settings.lock_options().unwrap(), options);
    let client = settings.builder().unwrap().build().unwrap();
    assert_eq!(client.mutex("x").unwrap().name(), b"shop:x");

    let plain: ClientSettings = from_str(r#"{ "url": "redis://localhost" }"#).unwrap();
    assert_eq!(plain.lock_options().unwrap(), LockOptions::new());
    plain.builder().unwrap().build().unwrap();
    for (more, name) in [
        (r#""sentinels": []"#, "sentinels"),
        (r#""cluster": ["unix:///s"]"#, "cluster"),
        (r#""map_address": { "a:1": "b:2" }"#, "map_address"),
        (r#""max_size": 0"#, "max_size"),
        (r#""min_idle": 11"#, "min_idle"),
        (r#""max_idle": 11"#, "max_idle"),
        (r#""connect_timeout": "0s""#, "connect_timeout"),
        (r#""command_timeout": "0s""#, "command_timeout"),
        (r#""max_wait": "0s""#, "max_wait"),
        (r#""idle_timeout": "0s""#, "idle_timeout"),
        (r#""max_lifetime": "0s""#, "max_lifetime"),
        (r#""give_up_after": "0s""#, "give_up_after"),
        (r#""slow_wait": "0s""#, "slow_wait"),
        #[cfg(feature = "tls")]
        (r#""ca_certificate": "MIIB""#, "ca_certificate"),
        #[cfg(feature = "tls")]
        (r#""client_certificate": { "chain": "MIIB", "key": "s3cret" }"#, "client_certificate"),
    ] {
        let file = format!(r#"{{ "url": "redis://localhost", {more} }}"#);
        let settings: ClientSettings = from_str(&file).unwrap();
        let error = settings.builder().unwrap().build().unwrap_err();
        names(&error, [name, "invalid", "expected"]);
    }
}

#[test]
fn a_mistake_in_a_file_is_named() {
    for text in ["", "10", "soon", "-1s", "99999999999999999999s"] {
        for name in ["connect_timeout", "idle_timeout", "slow_wait", "max_wait"] {
            let file = format!(r#"{{ "url": "redis://localhost", "{name}": "{text}" }}"#);
            let error = from_str::<ClientSettings>(&file).unwrap().builder().unwrap_err();
            names(&error, [name, text, "500ms"]);
        }
    }
    for (lock, parts) in [
        (r#"{ "wait": "never" }"#, ["wait", "\"never\"", "queue, notify or spin"]),
        (r#"{ "release": "del" }"#, ["release", "\"del\"", "lua or watch"]),
        (r#"{ "lease": { "ttl": "x" } }"#, ["lease", "\"x\"", "500ms"]),
        (r#"{ "linger": "never" }"#, ["linger", "\"never\"", "500ms"]),
        (
            r#"{ "min_replicas": { "least": 1, "within": "x" } }"#,
            ["min_replicas", "\"x\"", "500ms"],
        ),
    ] {
        let file = format!(r#"{{ "url": "redis://localhost", "lock": {lock} }}"#);
        names(&from_str::<ClientSettings>(&file).unwrap().lock_options().unwrap_err(), parts);
    }
    for text in ["", "a", "a:", ":1", "a:70000", "[]:1"] {
        for pair in [format!(r#""{text}": "b:1""#), format!(r#""b:1": "{text}""#)] {
            let file = format!(r#"{{ "url": "redis://a", "map_address": {{ {pair} }} }}"#);
            let error = from_str::<ClientSettings>(&file).unwrap().builder().unwrap_err();
            names(&error, ["map_address", &format!("\"{text}\""), "HOST:PORT"]);
        }
    }
    let error = from_str::<ClientSettings>(r#"{ "url": "redis://a", "max_szie": 3 }"#).unwrap_err();
    assert!(error.to_string().contains("max_szie"), "{error}");
    let error = ClientSettings::default().builder().unwrap().build().unwrap_err();
    names(&error, ["url", "empty", "redis://"]);
}

#[test]
fn debug_of_settings_hides_passwords() {
    for url in ["redis://locks:s3cret@localhost", "redis://:s3/cret@localhost", "s3cret"] {
        let file = format!(r#"{{ "url": "{url}", "sentinels": ["{url}"], "label": "billing" }}"#);
        let shown = format!("{:?}", from_str::<ClientSettings>(&file).unwrap());
        assert!(!shown.contains("s3") && !shown.contains("cret"), "{shown}");
        assert!(shown.contains("billing"), "{shown}");
    }
}

/// The parser of the file shows what it did not expect, which may be a URL with its password.
#[test]
fn error_of_a_file_hides_what_may_be_secret() {
    let mut settings = vec!["sentinels", "cluster"];
    if cfg!(feature = "tls") {
        settings.push("client_certificate");
    }
    for setting in settings {
        for value in [r#""redis://:s3cret@host""#, r#"{ "s3cret": "s3cret" }"#, r#"["s3cret", 3]"#]
        {
            let file = format!(r#"{{ "url": "redis://a", "{setting}": {value} }}"#);
            let text = from_str::<ClientSettings>(&file).map(drop).unwrap_err().to_string();
            assert!(text.contains("expected") && !text.contains("s3cret"), "{text}");
        }
    }
}

#[test]
fn client_of_a_file_locks() {
    let server = server();
    let file = format!(
        r#"{{ "url": "{}", "connect_now": true, "lock": {{ "lease": {{ "ttl": "9s" }} }} }}"#,
        server.url()
    );
    let settings: ClientSettings = from_str(&file).unwrap();
    let client = settings.builder().unwrap().build().unwrap();
    let options = settings.lock_options().unwrap();
    assert_eq!(options, LockOptions::new().lease(Lease::renewed(ms(9_000))));
    assert_ne!(options, fixed(9_000));
    client.mutex_with("x", options).unwrap().lock().unwrap().release().unwrap();
}

#[test]
fn lease_of_a_file_has_its_tail() {
    let server = server();
    let file = |lease: &str| -> ClientSettings {
        let lock = format!(r#"{{ "lease": {lease} }}"#);
        from_str(&format!(r#"{{ "url": "{}", "lock": {lock} }}"#, server.url())).unwrap()
    };
    let settings = file(r#"{ "ttl": "3s", "recoverable_for": "27s" }"#);
    let lease = Lease::renewed(ms(3_000)).recoverable_for(ms(27_000));
    assert_eq!(settings.lock_options().unwrap(), LockOptions::new().lease(lease));
    let client = settings.builder().unwrap().build().unwrap();
    let options = settings.lock_options().unwrap();
    let guard = client.mutex_with("x", options).unwrap().lock().unwrap();
    assert!(ask::<i64>(&server, &["PTTL", "x"]) > 27_000, "the key outlives the lease");
    assert!(guard.remaining() <= ms(3_000));
    guard.release().unwrap();

    let soon = file(r#"{ "recoverable_for": "soon" }"#).lock_options().unwrap_err();
    names(&soon, ["recoverable_for", "\"soon\"", "500ms"]);
    let fixed = file(r#"{ "renewed": false, "recoverable_for": "27s" }"#);
    let error = client.mutex_with("x", fixed.lock_options().unwrap()).unwrap_err();
    names(&error, ["recoverable_for", "fixed lease", "Lease::renewed"]);
}

#[test]
fn password_of_a_file_is_read_at_each_connection() {
    let server = server();
    let mut redis = server.connection();
    let mut set = |command: &str| {
        let mut words = command.split(' ');
        let mut set = leasehold::redis::cmd(words.next().unwrap());
        words.fold(&mut set, |set, word| set.arg(word)).exec(&mut redis).unwrap();
    };
    set("ACL SETUSER locks on >first ~* &* +@all");
    let path = server.directory().join("password");
    std::fs::write(&path, "first\nno part of it\n").unwrap();
    let file = format!(
        r#"{{ "url": "{}", "user": "locks", "password_file": "{}" }}"#,
        server.url(),
        path.display()
    );
    let settings: ClientSettings = from_str(&file).unwrap();
    let client = settings.builder().unwrap().build().unwrap();
    let lock = client.mutex("x").unwrap();
    lock.lock().unwrap().release().unwrap();

    set("ACL SETUSER locks >second <first");
    std::fs::write(&path, "second").unwrap();
    set("CLIENT KILL USER locks");
    lock.lock().unwrap().release().unwrap();

    std::fs::remove_file(&path).unwrap();
    set("CLIENT KILL USER locks");
    let error = lock.try_lock().unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("password"), "{error}");
    let file = r#"{ "url": "redis://a", "user": "locks" }"#;
    names(
        &from_str::<ClientSettings>(file).unwrap().builder().unwrap_err(),
        ["user", "alone", "URL"],
    );
    if cfg!(feature = "tls") {
        let file = r#"{ "url": "rediss://a", "ca_file": "/no/such.pem" }"#;
        let error = from_str::<ClientSettings>(file).unwrap().builder().unwrap_err();
        names(&error, ["ca_file", "/no/such.pem", "PEM"]);
    }
}

#[test]
fn setting_for_locks_by_key_comes_from_the_file() {
    let server = server();
    for (more, again) in [("", true), (", \"reentrant_by_key\": false", false)] {
        let file = format!("{{ \"url\": \"{}\"{more} }}", server.url());
        let client = from_str::<ClientSettings>(&file).unwrap().builder().unwrap().build().unwrap();
        let take = || client.try_lock("x", Duration::ZERO, Lease::default()).unwrap();
        assert!(take());
        assert_eq!(take(), again);
        (0..1 + u8::from(again)).for_each(|_| client.unlock("x").unwrap());
    }
}

/// The crate that reads times panics at such a sum.
#[test]
fn time_that_is_too_long_is_refused() {
    for text in ["18446744073709551615s 1000ms", "584542046090y 584542046090y"] {
        let file = format!(r#"{{"url":"redis://localhost","command_timeout":"{text}"}}"#);
        let settings: ClientSettings = from_str(&file).unwrap();
        let error = settings.builder().expect_err("refused");
        names(&error, ["command_timeout", text, "500ms, 10s or 5m"]);
        assert!(from_str::<Lease>(&format!(r#"{{"ttl":"{text}"}}"#)).is_err(), "{text}");
    }
    let lease: Lease = from_str(r#"{"ttl":"1m 30s500ms"}"#).unwrap();
    assert_eq!(lease.ttl(), ms(90_500));
}
