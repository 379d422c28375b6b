//! Where the comparisons of a Rust file are, and the file with each of them behind a switch.

use std::ops::Range;

use syn::spanned::Spanned as _;
use syn::visit::{self, Visit};
use syn::{Attribute, BinOp, ExprBinary, ImplItemFn, ItemConst, ItemFn, ItemMod, ItemStatic};

/// A comparison of a file.
pub(super) struct Comparison {
    whole: Range<usize>,
    pub(super) operator: Range<usize>,
    pub(super) to: &'static str,
}

/// The comparisons that run outside tests. Those in the arguments of macros are not looked at, nor those in constants
/// and constant functions, where nothing can be chosen at run time.
pub(super) fn comparisons(text: &str) -> Vec<Comparison> {
    let mut finder = Finder(Vec::new());
    finder.visit_file(&syn::parse_file(text).expect("a file of Rust"));
    finder.0
}

struct Finder(Vec<Comparison>);

/// Whether it is compiled for tests alone, as `#[cfg(test)]` and `#[test]` say.
fn is_for_tests(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("cfg") && list.tokens.to_string().contains("test")
        }
        meta => meta.path().is_ident("test"),
    })
}

impl<'a> Visit<'a> for Finder {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !is_for_tests(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        if !is_for_tests(&item.attrs) && item.sig.constness.is_none() {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        if !is_for_tests(&item.attrs) && item.sig.constness.is_none() {
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_const(&mut self, _: &'a ItemConst) {}

    fn visit_item_static(&mut self, _: &'a ItemStatic) {}

    fn visit_expr_binary(&mut self, binary: &'a ExprBinary) {
        let to = match binary.op {
            BinOp::Lt(_) => "<=",
            BinOp::Le(_) => "<",
            BinOp::Gt(_) => ">=",
            BinOp::Ge(_) => ">",
            BinOp::Eq(_) => "!=",
            BinOp::Ne(_) => "==",
            _ => return visit::visit_expr_binary(self, binary),
        };
        let (whole, operator) = (binary.span().byte_range(), binary.op.span().byte_range());
        self.0.push(Comparison { whole, operator, to });
        visit::visit_expr_binary(self, binary);
    }
}

/// The text in which each comparison asks whether it is the one that is swapped. They have the numbers from `first` on.
pub(super) fn planted(text: &str, comparisons: &[Comparison], first: usize) -> String {
    let numbered: Vec<(usize, &Comparison)> = (first..).zip(comparisons).collect();
    piece(text, 0..text.len(), &numbered)
}

/// A piece of the text with the comparisons in it, which stand in the order of their beginnings, the outer ones first.
fn piece(text: &str, range: Range<usize>, comparisons: &[(usize, &Comparison)]) -> String {
    let mut planted = String::new();
    let mut at = range.start;
    for &(number, Comparison { whole, operator, to }) in comparisons {
        // Else it is outside, or in one that stands there already.
        if whole.start < at || whole.end > range.end {
            continue;
        }
        let inside: Vec<_> =
            comparisons.iter().filter(|(other, _)| *other != number).copied().collect();
        let left = piece(text, whole.start..operator.start, &inside);
        let right = piece(text, operator.end..whole.end, &inside);
        let from = &text[operator.clone()];
        planted += &text[at..whole.start];
        planted += &format!(
            "(if crate::base::swap::is_at_work({number}) {{ {left}{to}{right} }} else {{ {left}{from}{right} }})"
        );
        at = whole.end;
    }
    planted + &text[at..range.end]
}

#[test]
fn each_comparison_of_the_code_gets_a_switch() {
    let text = "fn f(a: Vec<u8>) -> bool { g(|b| b < 1) == (c != d) && 'e' >= 0 }
        const fn h() -> bool { 1 < 2 }
        #[cfg(test)] mod tests { fn i() { j <= k } }
        const L: bool = 1 > 2;";
    let found = comparisons(text);
    let shown: Vec<_> = found.iter().map(|it| (&text[it.operator.clone()], it.to)).collect();
    assert_eq!(shown, [("==", "!="), ("<", "<="), ("!=", "=="), (">=", ">")]);
    let is = |number: usize| format!("if crate::base::swap::is_at_work({number})");
    let planted = planted(text, &found, 7);
    assert_eq!(planted.matches(&is(7)).count(), 1, "{planted}");
    // On both sides of the switch of the one around it.
    assert_eq!(planted.matches(&is(8)).count(), 2, "{planted}");
    assert!(planted.contains(&format!("({} {{ 'e' > 0 }} else {{ 'e' >= 0 }})", is(10))));
    syn::parse_file(&planted).expect("a file of Rust");
}
