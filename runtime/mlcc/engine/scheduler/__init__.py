"""The scheduler: waiting queue, budgets, packing of steps, verification of draft tokens."""
