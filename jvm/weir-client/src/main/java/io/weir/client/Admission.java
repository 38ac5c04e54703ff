package io.weir.client;

/** What became of the deadline of a coflow. */
public enum Admission {
    /** The policy has not seen the coflow yet. */
    UNDECIDED,
    /** The coflow was let in; under a policy that promises deadlines it will be met. */
    ADMITTED,
    /** It cannot be met. */
    REFUSED,
    /** The coflow has none. */
    NO_DEADLINE,
    /** The coordinator is of a later version than this client, and says something else. */
    OTHER;

    static Admission of(weir.v1.Status.Admission wire) {
        switch (wire) {
            case ADMISSION_UNDECIDED:
                return UNDECIDED;
            case ADMISSION_ADMITTED:
                return ADMITTED;
            case ADMISSION_REFUSED:
                return REFUSED;
            case ADMISSION_NO_DEADLINE:
                return NO_DEADLINE;
            default:
                return OTHER;
        }
    }
}
