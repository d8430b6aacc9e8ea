"""What a policy, a family, a delay and an estimator are, and the steps that they share."""
