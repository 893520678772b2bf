"""PAC-Bayes certificates: bounds, codes, locks and evidence. Imports without torch."""
