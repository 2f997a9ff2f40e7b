"""Object stores: checks what kills, lost answers, late puts and second drivers leave of a journal without a disk."""
