//! A small seeded generator (splitmix64), so that a plan is a function of its seed and of nothing else.

pub struct Random(u64);

impl Random {
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
