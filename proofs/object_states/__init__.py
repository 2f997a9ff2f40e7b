"""Object stores: checks a journal without a disk after each disturbance.

The disturbances are kills, lost answers, late puts and second drivers.
"""
