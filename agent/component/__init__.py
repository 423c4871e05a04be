"""The building blocks of dependencies, actions and monitors: component, registry, parameter types."""
