"""The four slots of a mechanism; any component of one slot goes with any of the others.

``initialize`` -> ``order`` -> ``partition`` -> ``estimate``. What each may see and must return is in
``protocols``. A component is a frozen dataclass with one method; it reaches the data only through the
curator it is handed, and says by ``spends`` whether it takes a share of the budget.
"""
