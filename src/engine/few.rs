//! A list that usually has one element at most, and then allocates nothing.

#[derive(Debug)]
pub(crate) struct Few<T> {
    first: Option<T>,
    more: Vec<T>,
}

impl<T> Few<T> {
    pub(crate) fn new() -> Few<T> {
        Few { first: None, more: Vec::new() }
    }

    pub(crate) fn push(&mut self, one: T) {
        match &self.first {
            None => self.first = Some(one),
            Some(_) => self.more.push(one),
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.first.iter().chain(&self.more)
    }

    pub(crate) fn retain(&mut self, keeps: impl Fn(&T) -> bool) {
        self.more.retain(&keeps);
        self.first = self.first.take().filter(keeps).or_else(|| self.more.pop());
    }
}

impl<T> FromIterator<T> for Few<T> {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Few<T> {
        let mut all = all.into_iter();
        Few { first: all.next(), more: all.collect() }
    }
}
