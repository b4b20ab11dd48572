from datetime import UTC, datetime

import pytest

from strop.errors import ConflictError, MissingError
from strop.schema.deployment import Deployment, DeploymentStatus
from strop.store.deployments import (
    change_deployment,
    create_deployment,
    forget_deployment,
    get_deployment,
    list_deployments,
    move_deployment,
    numbered_deployments,
    served_from,
)


def deployment(name: str = "tiny-1", *, workspace_id: str = "default") -> Deployment:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    return Deployment(
        deployed_model=name,
        workspace_id=workspace_id,
        model_name="tiny",
        base_model="tiny",
        source="/models/tiny",
        plan="mu",
        capacity=2,
        status=DeploymentStatus.PENDING,
        creator="ada",
        modifier="ada",
        created_at=now,
        modified_at=now,
    )


def test_a_deployment_comes_back_as_it_was_and_its_name_is_taken(database):
    with database.write() as session:
        create_deployment(session, deployment())
    with database.read() as session:
        assert get_deployment(session, "tiny-1", workspace_id="default") == deployment()
    with pytest.raises(ConflictError, match="choose another suffix"), database.write() as session:
        create_deployment(session, deployment(workspace_id="other"))


def test_another_workspace_sees_and_changes_nothing_of_it(database):
    with database.write() as session:
        create_deployment(session, deployment())
        assert numbered_deployments(session, workspace_id="other", page_no=1, page_size=9) == ([], 0)
        with pytest.raises(MissingError, match="no deployment 'tiny-1'"):
            get_deployment(session, "tiny-1", workspace_id="other")
        with pytest.raises(MissingError):
            change_deployment(session, "tiny-1", workspace_id="other", modifier="eve", capacity=9)
        assert [one.deployed_model for one in list_deployments(session)] == ["tiny-1"]


def test_a_change_names_who_made_it(database):
    with database.write() as session:
        create_deployment(session, deployment())
        changed = change_deployment(
            session, "tiny-1", workspace_id="default", modifier="bob", capacity=3, rpm_limit=60
        )
    assert (changed.capacity, changed.rpm_limit, changed.tpm_limit) == (3, 60, None)
    assert (changed.creator, changed.modifier) == ("ada", "bob")
    assert changed.modified_at > changed.created_at


def test_the_status_moves_only_along_the_table_and_not_out_of_deleting(database):
    with database.write() as session:
        create_deployment(session, deployment())
        moved = move_deployment(session, "tiny-1", DeploymentStatus.FAILED, error="no memory")
        assert (moved.status, moved.error) == (DeploymentStatus.FAILED, "no memory")
        assert move_deployment(session, "tiny-1", DeploymentStatus.RUNNING).error is None
        move_deployment(session, "tiny-1", DeploymentStatus.DELETING)
    with (
        pytest.raises(ConflictError, match="is DELETING and cannot become RUNNING"),
        database.write() as session,
    ):
        move_deployment(session, "tiny-1", DeploymentStatus.RUNNING)
    with pytest.raises(ConflictError, match="being deleted"), database.write() as session:
        change_deployment(session, "tiny-1", workspace_id="default", modifier="bob", capacity=3)


def test_a_model_that_is_served_is_known_to_be_until_the_row_has_gone(database):
    with database.write() as session:
        create_deployment(session, deployment("tiny-2"))
        create_deployment(session, deployment("tiny-1"))
        assert served_from(session, "tiny") == ["tiny-1", "tiny-2"]
        forget_deployment(session, "tiny-1")
        forget_deployment(session, "tiny-1")
        assert served_from(session, "tiny") == ["tiny-2"]
