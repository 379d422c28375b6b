//! A list that usually has one element at most, and then allocates nothing.

#[derive(Debug)]
pub(super) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Few<T> {
    pub(super) fn new() -> Few<T> {
        Few { first: None, more: Vec::new() }
    }

    pub(super) fn push(&mut self, one: T) {
        match &self.first {
            None => self.first = Some(one),
            Some(_) => self.more.push(one),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    pub(super) fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        self.more.retain(&keeps);
        self.first = self.first.take().filter(keeps).or_else(|| self.more.pop());
    }
}
