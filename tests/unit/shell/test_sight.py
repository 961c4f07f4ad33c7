from backend_plugin.shell.sight import Sight, State


def test_the_age_is_that_of_the_oldest_namespace_and_of_kinds_that_are_watched() -> None:
    clock = [100.0]
    sight = Sight(lambda: clock[0])
    for kind, namespace in (("pods", "a"), ("pods", "b"), ("workloads", ""), ("jobs", "")):
        sight.stands(kind, namespace, State.WAITING)
    clock[0] = 107.0
    assert sight.ages() == {("pods",): 7.0, ("workloads",): 7.0, ("jobs",): 7.0}
    sight.receive("pods", "a")
    sight.receive("jobs", "")
    sight.stands("pods", "a", State.IN_SIGHT)
    sight.stands("workloads", "", State.ABSENT)
    sight.stands("jobs", "", State.OUT_OF_SIGHT)
    clock[0] = 110.0
    assert sight.ages() == {("pods",): 10.0, ("jobs",): 3.0}
    sight.stands("jobs", "", State.REFUSED)
    assert sight.ages() == {("pods",): 10.0}
