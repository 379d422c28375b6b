//! Known values of the statistics.

use leasehold_support::stat::{JsonLine, jain, median, percentile};

#[test]
fn medians_and_percentiles_are_exact() {
    assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    assert_eq!(percentile(&[10.0, 20.0], 100.0), 20.0);
    assert_eq!(percentile(&[10.0, 20.0], 75.0), 17.5);
    assert!(median(&[]).is_nan());
}

#[test]
fn fairness() {
    assert_eq!(jain(&[5.0, 5.0, 5.0, 5.0]), 1.0);
    assert_eq!(jain(&[8.0, 0.0, 0.0, 0.0]), 0.25);
}

#[test]
fn a_line_keeps_its_order_and_escapes() {
    let line = JsonLine::new().string("name", "a \"b\"\n").number("p50", 1.5);
    let line = line.integer("count", 3).boolean("ok", true).number("none", f64::NAN).finish();
    assert_eq!(line, r#"{"name":"a \"b\"\u000a","p50":1.5,"count":3,"ok":true,"none":null}"#);
}
