"""From a profile's elements to plans: planner, variables, groups, services."""
