"""What breaking each rule of validity costs: the predicted rate of a false certificate at delta = .05.

The tests that measure them are in `test_negative_control` and `test_bounds_simulation`; each compares what it finds
with this table. Every rate is ten standard errors of 20,000 repetitions above delta, so that none can hide.
"""

import math

DELTA, REPETITIONS = 0.05, 20_000
RATES = {
    "an uncoded choice among 64": 0.962,
    "the best of ten noises": 0.401,
    "repeats keyed without an occurrence index": 0.117,
    "expected pass@1 from the hypergeometric": 0.22,
    "20 certificates read jointly": 0.642,
    "peeking at n": 0.199,
    "failures dropped": 0.66,
    "clusters treated as items": 0.30,
    "a grid tuned on S": 0.466,
    "a memorising base under iid": 0.359,
    "disagreement measured on training prompts": 1.0,
}

LEAST_VISIBLE = DELTA + 10 * math.sqrt(DELTA * (1 - DELTA) / REPETITIONS)
