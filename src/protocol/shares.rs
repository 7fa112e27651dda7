//! How permits and stream windows are shared among lanes: by weight while several wait, wholly by one that waits alone.

/// A lane as the sharing sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Claimant {
    /// Its share while others wait, too.
    pub weight: u32,
    /// The most that it can use.
    pub wants: usize,
}

/// Shares `total` among the claimants, in their order: nobody gets more than wanted, what one leaves goes to the others, and each
/// one that wants something gets at least one while there are enough.
pub fn share(total: usize, claimants: &[Claimant]) -> Vec<usize> {
    let mut shares = vec![0; claimants.len()];
    let mut left = total;
    while left > 0 {
        let hungry = |index: &usize| shares[*index] < claimants[*index].wants;
        let open: Vec<usize> = (0..claimants.len()).filter(hungry).collect();
        if open.is_empty() {
            break;
        }
        let weight = |index: usize| claimants[index].weight.max(1) as usize;
        let weights: usize = open.iter().map(|&index| weight(index)).sum();
        let round = left;
        for index in open {
            // At least one, so that a light lane is not starved; in order, so that the first comes first when there is too little.
            let fair = (round * weight(index) / weights).max(1);
            let given = fair.min(claimants[index].wants - shares[index]).min(left);
            shares[index] += given;
            left -= given;
        }
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(wants: [usize; 3]) -> Vec<Claimant> {
        [8, 4, 1].into_iter().zip(wants).map(|(weight, wants)| Claimant { weight, wants }).collect()
    }

    #[test]
    fn waiting_lanes_share_by_weight() {
        assert_eq!(share(130, &lanes([1000, 1000, 1000])), [80, 40, 10]);
    }

    #[test]
    fn a_lane_alone_gets_everything() {
        assert_eq!(share(64, &lanes([0, 0, 1000])), [0, 0, 64]);
    }

    #[test]
    fn what_one_leaves_goes_to_the_others_and_nothing_is_wasted() {
        assert_eq!(share(100, &lanes([5, 1000, 1000])).iter().sum::<usize>(), 100);
        assert_eq!(share(100, &lanes([5, 1000, 1000]))[0], 5);
    }

    #[test]
    fn nobody_is_starved_and_the_first_comes_first() {
        assert_eq!(share(3, &lanes([1000, 1000, 1000])), [1, 1, 1]);
        assert_eq!(share(1, &lanes([1000, 1000, 1000])), [1, 0, 0]);
    }

    #[test]
    fn nobody_gets_more_than_wanted_and_never_more_than_there_is_is_given() {
        for total in 0..40 {
            for wants in [[0, 0, 0], [1, 2, 3], [50, 0, 7], [9, 9, 9]] {
                let shares = share(total, &lanes(wants));
                assert!(shares.iter().zip(wants).all(|(share, wants)| *share <= wants));
                assert_eq!(shares.iter().sum::<usize>(), total.min(wants.iter().sum()));
            }
        }
    }
}
