#![cfg_attr(not(doctest), doc = include_str!("guide/links.md"))]
#![doc = include_str!("../docs/README.md")]
// The pages are the files of docs/, so that one text is read here, on the forge, and in the package. A link in
// them is a reference, such as [waiting], and each file ends with definitions that hold between files. Here
// the definitions of links.md come first, and Markdown takes the first: the same reference leads to a page or an item
// of this documentation, and rustdoc checks it. tests/it/link.rs checks that both lead to the same place. Doc tests go
// without them, so that a failure names the file and the line of the page.

/// One page.
macro_rules! page {
    ($name:ident) => {
        #[cfg_attr(not(doctest), doc = include_str!("guide/links.md"))]
        #[doc = include_str!(concat!("../docs/", stringify!($name), ".md"))]
        pub mod $name {}
    };
}

page!(choosing);
page!(concepts);
page!(recipes);
page!(options);
page!(waiting);
page!(errors);
page!(operations);
page!(topologies);
page!(command);
page!(limits);
page!(moving);
page!(comparison);
page!(design);
page!(proof);
page!(report);

// Its code and its links need the feature.
#[cfg_attr(all(feature = "testing", not(doctest)), doc = include_str!("guide/links.md"))]
#[cfg_attr(all(feature = "testing", not(doctest)), doc = include_str!("guide/testing.md"))]
#[cfg_attr(feature = "testing", doc = include_str!("../docs/testing.md"))]
#[cfg_attr(
    not(feature = "testing"),
    doc = "Build the documentation with the feature `testing` to read this page."
)]
pub mod testing {}
