//! The tests of a kind of lock that all topologies have but a quorum.

/// Makes a test of each function for each topology. A function takes a `&Scene<T>` of any topology.
#[allow(clippy::crate_in_macro_def, reason = "the functions are in the crate of the tests")]
#[macro_export]
macro_rules! suite {
    ($($test:ident)*) => {
        $crate::suite! { @each
            tls Tls, sentinel Sentinel, cluster Cluster;
            { $($test)* }
        }
    };
    (@each $($module:ident $topology:ident),*; $tests:tt) => {
        $($crate::suite! { @topology $module $topology $tests })*
    };
    (@topology $module:ident $topology:ident { $($test:ident)* }) => {
        mod $module {
            use std::sync::LazyLock;

            use $crate::scene::Scene;
            use $crate::{$topology, Topology};

            static SHARED: LazyLock<$topology> = LazyLock::new($topology::start);

            $(#[test]
            fn $test() {
                crate::$test(&Scene::new(&*SHARED, stringify!($test)));
            })*
        }
    };
}
