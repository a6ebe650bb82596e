//! A small seeded generator (splitmix64), so that a plan is a function of its seed and of nothing else. A failing run is
//! repeated with the seed that it printed.

pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// One stream of numbers per place in the plan: what happens at one place does not shift another.
    pub fn at(seed: u64, place: [u64; 2]) -> Self {
        let mut random = Self(seed);
        for part in place {
            random.0 = random.next() ^ part.wrapping_mul(0xD1B5_4A32_D192_ED03);
        }
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// From 0 to `n`, without `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }

    /// From `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low + 1)
    }

    pub fn percent(&mut self, chance: u64) -> bool {
        self.next() % 100 < chance
    }

    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.next() % from.len() as u64).unwrap_or(0)]
    }
}

/// The seed of this run: that of `GOV_HANDOFF_TEST_SEED`, or a new one.
pub fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a clock after 1970");
    let chosen = std::env::var("GOV_HANDOFF_TEST_SEED").ok().and_then(|text| text.parse().ok());
    chosen.unwrap_or_else(|| u64::from(now.subsec_nanos()))
}
