"""Bounds on the accuracy of a policy on new prompts: tails inverted in log space, rounded against the claim."""

from pacbayes.bounds.accuracy import (
    ACCURACY_BOUNDS,
    certified_accuracy,
    certified_mean_accuracy,
    certified_unseen_mean_accuracy,
)
from pacbayes.bounds.audit import flips_upper, gain_with_flips
from pacbayes.bounds.betting import STAKES, betting_mean_lower, betting_mean_lower_from_counts, betting_mean_upper
from pacbayes.bounds.binomial import binomial_risk_lower, binomial_risk_upper, log_failure_probability
from pacbayes.bounds.concentration import (
    CATONI_GRID,
    catoni_risk_upper,
    gaussian_kl,
    hoeffding_risk_upper,
    kl_risk_lower,
    kl_risk_upper,
    maurer_seeger_risk_upper,
    pac_bayes_kl_risk_upper,
)
from pacbayes.bounds.finite_pool import (
    certified_pool_accuracy,
    expected_pool_risk_upper,
    pool_losses_lower,
    pool_losses_upper,
    unseen_losses_upper,
)
from pacbayes.bounds.labels import LabelPlan, LearningCurve, expected_certified_accuracy, plan_labels
from pacbayes.bounds.planning import required_accuracy, required_bits, required_n
from pacbayes.bounds.statements import (
    CertifiedGain,
    JointClaim,
    PairedCounts,
    certified_gain,
    disagreement_upper,
    holdout_accuracy,
    joint_accuracies,
    transfer_accuracy,
    transfer_pool_accuracy,
)

__all__ = [
    "ACCURACY_BOUNDS",
    "CATONI_GRID",
    "STAKES",
    "CertifiedGain",
    "JointClaim",
    "LabelPlan",
    "LearningCurve",
    "PairedCounts",
    "betting_mean_lower",
    "betting_mean_lower_from_counts",
    "betting_mean_upper",
    "binomial_risk_lower",
    "binomial_risk_upper",
    "catoni_risk_upper",
    "certified_accuracy",
    "certified_gain",
    "certified_mean_accuracy",
    "certified_pool_accuracy",
    "certified_unseen_mean_accuracy",
    "disagreement_upper",
    "expected_certified_accuracy",
    "expected_pool_risk_upper",
    "flips_upper",
    "gain_with_flips",
    "gaussian_kl",
    "hoeffding_risk_upper",
    "holdout_accuracy",
    "joint_accuracies",
    "kl_risk_lower",
    "kl_risk_upper",
    "log_failure_probability",
    "maurer_seeger_risk_upper",
    "pac_bayes_kl_risk_upper",
    "plan_labels",
    "pool_losses_lower",
    "pool_losses_upper",
    "required_accuracy",
    "required_bits",
    "required_n",
    "transfer_accuracy",
    "transfer_pool_accuracy",
    "unseen_losses_upper",
]
