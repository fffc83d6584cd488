"""What the bounds are worth: false alarms on correct candidates, and the faults they can see."""
