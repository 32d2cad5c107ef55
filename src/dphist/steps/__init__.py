"""The four slots of a mechanism; components of different slots can be combined freely.

``initialize`` -> ``order`` -> ``partition`` -> ``estimate``. ``protocols`` says what each may read and must
return. A component is a frozen dataclass with one method; it reaches the data only through the curator that
it receives, and ``spends`` says whether it takes a share of the budget.

>>> from dphist.steps import estimate, partition
>>> partition.Singletons().spends, estimate.GroupMeans().spends
(False, True)
"""
