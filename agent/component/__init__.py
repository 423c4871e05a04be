"""What dependencies, actions and monitors are made of: component, registry, parameter types."""
