//! Who holds a lock, under which name, and in what key.

use leasehold_topology_test::scene::{Scene, fixed, ms, until};
use leasehold_topology_test::{Builder, Client, Topology};

pub(crate) fn holder_is_shown_by_label_host_and_process<T: Topology>(scene: &Scene<'_, T>) {
    let client = scene.builder().label("billing: nightly").build().unwrap();
    let lock = client.mutex(&scene.name("x")).unwrap();
    let elsewhere = scene.lock();
    assert!(elsewhere.holder().unwrap().is_none() && !elsewhere.is_locked().unwrap());
    let guard = lock.lock().unwrap();
    assert!(elsewhere.is_locked().unwrap());
    let holder = elsewhere.holder().unwrap().expect("a holder");
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname");
    assert_eq!(holder.label(), Some("billing: nightly"));
    assert_eq!(holder.pid(), Some(std::process::id()));
    if let Ok(host) = host {
        assert_eq!(holder.host(), Some(host.trim()));
    }
    guard.release().unwrap();
    assert!(elsewhere.holder().unwrap().is_none() && !elsewhere.is_locked().unwrap());
}

pub(crate) fn a_lock_is_inspected_with_its_token_and_age<T: Topology>(scene: &Scene<'_, T>) {
    let client = scene.builder().label("billing").build().unwrap();
    let lock = client.mutex(&scene.name("x")).unwrap();
    let begin = std::time::Instant::now();
    let guard = lock.lock().unwrap();
    let seen = scene.lock().inspect().unwrap();
    let [holder] = seen.holders() else { panic!("{seen}") };
    assert_eq!((holder.label(), holder.token()), (Some("billing"), Some(guard.fencing_token())));
    // A token over several servers is ahead of their clocks for a moment.
    assert!(holder.since().is_none_or(|since| since <= begin.elapsed()), "{seen}");
    assert!(holder.ttl().is_some_and(|ttl| ttl <= ms(30_000)), "{seen}");
    guard.release().unwrap();
    let seen = scene.lock().inspect().unwrap();
    assert!(seen.holders().is_empty() && seen.to_string().starts_with("free"), "{seen}");
}

pub(crate) fn name_prefix_precedes_every_name<T: Topology>(scene: &Scene<'_, T>) {
    let (prefix, whole) = (scene.name("shop:"), scene.name("shop:orders"));
    let lock = scene.builder().name_prefix(&prefix).build().unwrap().mutex(b"orders").unwrap();
    assert_eq!(lock.name(), whole);
    let _guard = lock.lock().unwrap();
    assert!(scene.found(&whole) > 0);
    assert!(scene.client().mutex(&whole).unwrap().try_lock().unwrap().is_none());
}

pub(crate) fn any_bytes_are_a_name<T: Topology>(scene: &Scene<'_, T>) {
    let (client, other) = (scene.client(), scene.client());
    let ends: [&[u8]; 6] = [
        b"\0",
        b"a\r\nDEL b\r\n",
        b"\xff\xfe\x00",
        "schl\u{fc}ssel \u{1f512}".as_bytes(),
        b"{a}{b}",
        b"%s %d $1 KEYS[1] ' \"",
    ];
    // What no cluster can keep together is said to who asks for it.
    let stray: Option<&[u8]> = T::STRAY_BRACES.then_some(b"}{");
    if stray.is_none() {
        let (error, name) = (client.mutex(&scene.name("}{")).unwrap_err(), scene.name("}{"));
        let (text, shown) = (error.to_string(), name.escape_ascii().to_string());
        let parts = ["name", &shown, "no braces but"];
        assert!(error.is_config() && parts.iter().all(|part| text.contains(part)), "{error:?}");
    }
    for end in ends.into_iter().chain(stray) {
        let name = [&scene.name("")[..], end].concat();
        let lock = client.mutex(&name).unwrap();
        assert_eq!(lock.name(), name);
        let guard = lock.lock().unwrap();
        assert!(scene.found(&name) > 0, "{}", name.escape_ascii());
        assert!(other.mutex(&name).unwrap().try_lock().unwrap().is_none());
        guard.check().unwrap();
        guard.release().unwrap();
        until("it is gone everywhere", || scene.found(&name) == 0);
    }
    let longest = vec![b'n'; 65_536];
    client.mutex(&longest).unwrap().lock().unwrap().release().unwrap();
}

pub(crate) fn key_of_another_type_is_an_error_and_not_touched<T: Topology>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    scene.ask::<()>(&name, &[b"LPUSH", &name, b"value"]);
    let lock = scene.lock();
    assert!(lock.try_lock().unwrap_err().is_wrong_type());
    assert!(lock.lock().unwrap_err().is_wrong_type());
    assert!(lock.is_locked().unwrap_err().is_wrong_type());
    assert!(lock.force_release().unwrap_err().is_wrong_type());
    assert!(scene.ask::<usize>(&name, &[b"LLEN", &name]).iter().all(|&length| length == 1));
    scene.delete(&name);
    lock.lock().unwrap().release().unwrap();
}

pub(crate) fn invalid_input_is_rejected_before_any_request<T: Topology>(scene: &Scene<'_, T>) {
    let client = scene.client();
    let error = client.mutex(b"").unwrap_err();
    assert!(error.is_config() && error.to_string().contains("name"), "{error:?}");
    assert!(client.mutex(&vec![b'n'; 65_537]).unwrap_err().is_config());
    let error = client.mutex_with(b"x", fixed(0)).unwrap_err();
    assert!(error.is_config() && error.to_string().contains("lease"), "{error:?}");
    let error = scene.builder().give_up_after(std::time::Duration::ZERO).build().unwrap_err();
    assert!(error.is_config() && error.to_string().contains("give_up_after"), "{error:?}");
}

pub(crate) fn string_that_may_be_data_is_taken_by_its_name_only<T: Topology>(scene: &Scene<'_, T>) {
    let name = scene.name("x");
    scene.ask::<()>(&name, &[b"SET", &name, b"a profile"]);
    let lock = scene.lock();
    assert!(lock.try_lock().unwrap().is_none(), "it may be a lock");
    let holder = lock.holder().unwrap().expect("a holder");
    assert!(lock.force_release().unwrap_err().is_wrong_type());
    assert!(lock.force_release_of(&holder).unwrap_err().is_wrong_type());
    assert!(scene.ask::<String>(&name, &[b"GET", &name]).iter().all(|value| value == "a profile"));
    assert!(lock.force_release_any().unwrap());
    assert_eq!(scene.found(&name), 0);
    // With an end it is the lock of another program.
    scene.ask::<()>(&name, &[b"SET", &name, b"another's", b"PX", b"600000"]);
    assert!(lock.force_release().unwrap());
    assert_eq!(scene.found(&name), 0);
}
